"""Sixty words of other tools, and typing errors: each leads to the right name or line."""

import pytest

from ptrun.cli import _no_command
from ptrun.config.build import check
from ptrun.config.compose import compose_run
from ptrun.errors import UserError

OVERRIDES = {
    "lr=1e-3": "type train.lr=VALUE",
    "learning_rate=1e-3": "type train.lr=VALUE",
    "epochs=3": "type train.epochs=VALUE",
    "num_train_epochs=3": "type train.epochs=VALUE",
    "batch_size=8": "type train.batch_size=VALUE",
    "per_device_train_batch_size=8": "type train.batch_size=VALUE",
    "max_steps=10": "type train.max_steps=VALUE",
    "weight_decay=0.1": "type train.weight_decay=VALUE",
    "warmup_ratio=0.1": "type train.warmup=VALUE",
    "model=bert": "did you mean 'backbone'",
    "model_name_or_path=bert": "type backbone=NAME (ptrun list backbone) or backbone.path=FOLDER",
    "dataset=sst2": "did you mean 'task'",
    "csv=a.csv": "task=csv task.train=FILE",
    "text=review": "type task=csv task.train=FILE task.text=COLUMN task.label=COLUMN",
    "label=stars": "type task=csv task.train=FILE task.text=COLUMN task.label=COLUMN",
    "seeds=1,2,3": "type -m seed=1,2,3",
    "random_seed=3": "did you mean 'seed'",
    "device=cuda": "type hardware=gpu",
    "gpu=1": "type hardware=gpu",
    "gpus=2": "type hardware.ranks=NUMBER",
    "fp16=true": "type hardware.precision=bf16",
    "precision=bf16": "type hardware.precision=bf16",
    "output_dir=x": "did you mean 'outputs'",
    "length=20": "type method.length=VALUE",
    "num_virtual_tokens=20": "type method.length=VALUE",
    "shots=8": "type setting=few_shot",
    "wandb=true": "type tracking=wandb",
    "resume=true": "type the same command again",
    "metod=lora": "did you mean 'method'",
    "bakbone=gpt2": "did you mean 'backbone'",
    "method=prefix_tuning": "did you mean 'ptuning_v2'",
    "method=prefix-tuning": "did you mean 'ptuning_v2'",
    "method=p_tuning_v2": "did you mean 'ptuning_v2'",
    "method=ptuning_v3": "did you mean 'ptuning_v2'",
    "method=prompt-tuning": "did you mean 'prompt_tuning'",
    "method=soft_prompt": "did you mean 'prompt_tuning'",
    "method=finetune": "did you mean 'fine_tuning'",
    "method=LoRA": "did you mean 'lora'",
    "method=adapters": "did you mean 'adapter'",
    "backbone=bert-base-uncased": "did you mean 'bert_base_uncased'",
    "backbone=google-bert/bert-base-cased": "did you mean 'bert_base_cased'",
    "backbone=roberta-large": "did you mean 'roberta_large'",
    "backbone=google/t5-base": "'t5_base_lm_adapt'",
    "task=SST-2": "did you mean 'sst2'",
    "task=mnli": "'glue_mnli'",
    "task=conll2003": "did you mean 'conll03'",
    "setting=fewshot": "did you mean 'few_shot'",
    "hardware=cuda": "did you mean 'gpu'",
    "hardware=deepspeed": "did you mean 'zero1'",
    "readout=mlm": "did you mean 'verbalizer'",
    "tracking=off": "did you mean 'none'",
    "train=x.csv": "it has keys; type train.KEY=VALUE. For a file: task=csv task.train=x.csv",
    "seed=null": "a value is needed. Type seed=VALUE",
    "=3": "expected KEY=VALUE",
    "method=3": "method=3: unknown. Allowed: adapter",
    "backbone=true": "backbone=true: unknown. Allowed: albert",
    "backbone=./bert": "type backbone.path=./bert",
    "task=x.csv": "type task=csv task.train=x.csv task.text=COLUMN task.label=COLUMN",
    "train.learning_rate=1": "did you mean 'lr'",
    "train.max_grad_norm=1": "did you mean 'clip'",
    "train.early_stopping=3": "did you mean 'patience'",
    "train.lr_scheduler=linear": "did you mean 'schedule'",
}
PARTS = {
    "method.num_virtual_tokens=20": "did you mean 'length'",
    "method.pre_seq_len=20": "did you mean 'length'",
    "hardware.fp16=true": "did you mean 'precision'",
    "hardware.gradient_checkpointing=true": "did you mean 'checkpointing'",
}
WORDS = {
    "train": "did you mean 'run'",
    "evaluate": "did you mean 'predict'",
    "sweep": "type ptrun -m KEY=VALUE,VALUE",
    "prefix_tuning": "type ptrun method=ptuning_v2",
    "lora": "type ptrun method=lora",
    "task": "type ptrun task=VALUE",
    "cuda": "type ptrun hardware=gpu",
    "sst2": "type ptrun task=sst2",
    "ppt/table4": "type ptrun experiment=ppt/table4",
}


@pytest.mark.parametrize("typed", OVERRIDES)
def test_a_root_key_or_an_option(typed):
    with pytest.raises(UserError) as raised:
        compose_run([typed])
    assert OVERRIDES[typed] in str(raised.value)


@pytest.mark.parametrize("typed", PARTS)
def test_a_key_of_a_part(typed):
    config = compose_run([typed]).config
    with pytest.raises(UserError) as raised:
        check({group: config[group] for group in ("method", "hardware")})
    assert PARTS[typed] in str(raised.value)


@pytest.mark.parametrize("word", WORDS)
def test_a_first_word_that_is_no_command(word):
    assert WORDS[word] in _no_command(word)


def test_more_than_sixty_are_tried():
    assert len(OVERRIDES) + len(PARTS) + len(WORDS) > 60
