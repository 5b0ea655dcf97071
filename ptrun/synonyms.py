"""Words of other tools and of papers: which name, or which line to type, they stand for here."""

import difflib
import re
from collections.abc import Iterable, Sequence

_MOST = 3  # names that are suggested
_NAMES = {
    # methods
    "ptuning_v2": "prefix prefix_tuning deep_prompt deep_prompt_tuning pv2 ptuning2",
    "prompt_tuning": "soft_prompt soft_prompt_tuning prompt lester",
    "fine_tuning": "finetune finetuning full_fine_tuning full ft",
    "manual_prompt": "zeroshot manual no_training",
    "dpt": "decomposed_prompt_tuning",
    "ppt": "pretrained_prompt_tuning",
    "adapter": "adapters houlsby bottleneck",
    "lora": "qlora lora_tuning",
    # commands and groups
    "run": "train fit start launch",
    "predict": "infer inference evaluate eval test generate",
    "report": "results table tables summary",
    "search": "tune hpo optimize optuna",
    "diff": "compare",
    "export": "convert save",
    "check": "validate lint show",
    "new": "init create",
    "status": "progress ps",
    "method": "methods algorithm",
    "backbone": "models model plm encoder",
    "task": "datasets dataset data tasks",
    "setting": "settings",
    "readout": "head heads verbalizers",
    "tracking": "logger loggers trackers",
    # options of other groups
    "gpu": "cuda nvidia",
    "zero1": "deepspeed zero zero_1",
    "head": "classifier classification linear cls",
    "verbalizer": "mlm cloze",
    "none": "off no false disabled",
    # keys of train
    "lr": "learning_rate step_size",
    "epochs": "num_train_epochs num_epochs n_epochs epoch max_epochs",
    "batch_size": "batch bs per_device_train_batch_size train_batch_size mini_batch",
    "max_steps": "steps max_train_steps iterations num_steps",
    "clip": "max_grad_norm grad_clip gradient_clipping gradient_clip_val",
    "warmup": "warmup_ratio warmup_steps num_warmup_steps",
    "patience": "early_stopping early_stopping_patience",
    "schedule": "scheduler lr_scheduler lr_scheduler_type",
    "eval_every": "eval_steps eval_interval val_check_interval evaluation_strategy",
    "optimizer": "optim",
    "weight_decay": "wd l2",
    # keys of methods
    "length": "num_virtual_tokens n_virtual_tokens prompt_length pre_seq_len prefix_length "
    "num_tokens n_tokens prefix_len prompt_len",
    "rank": "r lora_r dim",
    "alpha": "lora_alpha",
    "dropout": "lora_dropout p hidden_dropout_prob",
    "targets": "target_modules modules",
    # keys of hardware and of tasks
    "precision": "fp16 bf16 amp mixed_precision dtype",
    "checkpointing": "gradient_checkpointing activation_checkpointing",
    "ranks": "gpus n_gpus num_gpus world_size nproc_per_node devices",
    "quantization": "load_in_4bit load_in_8bit nf4",
    "text": "text_column input inputs sentence texts",
    "label": "label_column target y labels",
    "train": "train_file training data_files",
    "dev": "validation val valid validation_file dev_file",
    "test": "test_file",
    "separator": "sep delimiter",
    "columns": "header column_names names",
    "seed": "random_seed random_state",
    "outputs": "output_dir output save_dir log_dir out run_dir",
    "data_dir": "data_path",
}
"""What other tools call a name of ptrun. A name is suggested where it is allowed."""
_OF_TRAIN = (
    "lr epochs batch_size max_steps clip warmup patience schedule eval_every optimizer weight_decay"
)
_LINES = {
    "backbone=NAME (ptrun list backbone) or backbone.path=FOLDER": "model model_name "
    "model_name_or_path pretrained_model_name_or_path plm checkpoint tokenizer path pretrained",
    "task=NAME (ptrun list task), or task=csv task.train=FILE for a file": "dataset data "
    "dataset_name task_name csv file input train_file",
    "task=csv task.train=FILE task.text=COLUMN task.label=COLUMN": "text label text_column "
    "label_column columns",
    "-m seed=1,2,3": "seeds n_seeds num_seeds repeats",
    "hardware=gpu": "gpu cuda device use_cuda accelerator",
    "hardware=cpu": "cpu no_cuda",
    "hardware.ranks=NUMBER": "gpus n_gpus num_gpus world_size nproc_per_node devices",
    "hardware.precision=bf16": "fp16 bf16 amp precision mixed_precision dtype",
    "hardware.quantization=nf4": "load_in_4bit nf4 quantization",
    "method.length=NUMBER": "length prompt_length num_virtual_tokens pre_seq_len prefix_length",
    "method.rank=NUMBER": "rank r lora_r",
    "setting=few_shot": "shots k n_shot num_shots few_shot k_shot",
    "tracking=wandb": "wandb report_to logger use_wandb",
    "readout=verbalizer": "verbalizer template",
    "task.pattern='\"{~text} It was {mask}.\"'": "prompt pattern prompt_template",
    "ptrun --help": "usage man",
    "ptrun -m KEY=VALUE,VALUE": "sweep multirun grid_search",
    "the same command again: it goes on from the last save": "resume continue "
    "resume_from_checkpoint",
    "ptrun --version": "version",
}
"""What to type for a word that no name stands for where it was typed."""


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'x'?` or `; type LINE`, or an empty string.

    Args:
        word: what was typed: a key, an option or a command.
        known: what is allowed there.
    """
    names = list(known)
    found = _same(word, names) or _line(word) or _close(word, names)
    if isinstance(found, str):
        return f"; type {found}." if found else ""
    listed = " or ".join(f"'{name}'" for name in found[:_MOST])
    return f"; did you mean {listed}?" if found else ""


def meant(word: str, known: Iterable[str]) -> str | None:
    """Return the one known name that a word of another tool stands for, or None."""
    found = _same(word, list(known))
    return found[0] if len(found) == 1 else None


def _bare(word: str) -> str:
    return re.sub(r"[\W_]", "", word.lower())


_WORDS = [(_bare(word), name) for name, words in _NAMES.items() for word in words.split()]
_TYPED = {_bare(w): f"train.{w}=VALUE" for w in _OF_TRAIN.split()}
_TYPED |= {_bare(w): f"train.{n}=VALUE" for n in _OF_TRAIN.split() for w in _NAMES[n].split()}
_TYPED |= {_bare(word): line for line, words in _LINES.items() for word in words.split()}


def _same(word: str, names: Sequence[str]) -> list[str]:
    """Return the name with the same letters, or the one that the word stands for."""
    same = [name for name in names if _bare(name) == _bare(word)]
    stands = [name for other, name in _WORDS if other == _bare(word)]
    return same or [name for name in names if name in stands]


def _line(word: str) -> str:
    return _TYPED.get(_bare(word), "")


def _close(word: str, names: Sequence[str]) -> list[str]:
    """Return the names that the word is a part of, or the most similar one."""
    last = _bare(word.rpartition("/")[2])
    ends = (last, last) if len(last) > 2 else ("-", "-")  # no name has a hyphen left
    parts = [n for n in names if _bare(n).startswith(ends[0]) or _bare(n).endswith(ends[1])]
    return parts or difflib.get_close_matches(word, names, n=1, cutoff=0.6)
