"""Errors that the user can fix, failures of a valid run, and the words of messages."""

import difflib
import errno
import logging
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from reprlib import Repr
from typing import Any, TextIO

# Errors that the user can fix, failures of a valid run, and errors of the system in words.
#
# Readers and writers raise `UserError` where they know more. The command line, the workers of a
# sweep and the ranks of a run turn an error of the system or of a file format into one.

_SAME = "then type the same command again: it resumes from the last save."
_FULL = f"Free space, or type outputs=DIR on another disk; {_SAME}"
_RIGHTS = "Give yourself the right, or type another path (outputs=DIR for the folder of runs)."
_PATH = "Check the path; outputs=DIR sets the folder of runs."
_ADVICE = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EFBIG: f"Raise the limit of the size of a file (ulimit -f), {_SAME}",
    errno.EROFS: _RIGHTS,
    errno.EACCES: _RIGHTS,
    errno.EPERM: _RIGHTS,
    errno.ENOENT: f"It was removed, or its name is wrong. {_PATH}",
    errno.ENOTDIR: f"A part of the path is a file. {_PATH}",
    errno.EEXIST: f"A file is where a folder is needed. {_PATH}",
    errno.EISDIR: f"A folder is where a file is needed. {_PATH}",
    errno.ENAMETOOLONG: "Type a shorter name: name=NAME or outputs=DIR.",
    errno.ELOOP: f"Its links lead in a circle. {_PATH}",
    errno.EXDEV: "Nothing is written there. Remove the link, or type outputs=DIR.",
    errno.EMFILE: f"Raise the limit of open files (ulimit -n), {_SAME}",
    errno.ENFILE: f"The machine has too many open files; close some, {_SAME}",
    errno.EIO: f"The disk or the network failed. Check it, {_SAME}",
    errno.ESTALE: f"The shared file system lost the file. Check it, {_SAME}",
    errno.ENOMEM: "Free memory, or lower train.batch_size or hardware.token_budget.",
}
_LIBRARIES = ("safetensors", "safetensors_rust", "pyarrow", "yaml", "json")
_OF_SYSTEM = re.compile(r"\(os error (\d+)\)")
_CPU = "or type hardware=cpu."
_AGAIN = "The state is saved at each evaluation; the same command resumes from the last save."
_OF_DEVICE: Sequence[tuple[str, str, str]] = (
    (
        "out of memory|ALLOC_FAILED",
        "the GPU is out of memory",
        "Close what else uses it (nvidia-smi lists it), lower hardware.token_budget or "
        "train.batch_size, or see what fits: ptrun plan with the same options.",
    ),
    (
        "no kernel image is available|not compatible with the current PyTorch",
        "this torch is not built for this GPU",
        f"Install a build of torch that supports the GPU's compute capability, {_CPU}",
    ),
    (
        "driver on your system is too old|driver version is insufficient|Error 80[34]",
        "the NVIDIA driver does not fit this torch",
        f"Update the driver and restart, or install torch for an older CUDA version, {_CPU}",
    ),
    (
        "no NVIDIA driver|no CUDA-capable device|not compiled with CUDA",
        "torch finds no GPU that it can use",
        f"Install the NVIDIA driver (nvidia-smi must list the GPU), {_CPU}",
    ),
    (
        "invalid device ordinal|[Dd]uplicate GPU",
        "a rank has no GPU of its own",
        "Start no more ranks than there are GPUs (hardware.ranks), and check CUDA_VISIBLE_DEVICES.",
    ),
    (
        "busy or unavailable",
        "another process has the GPU for itself, or it is divided (MIG) without a slice",
        f"Set CUDA_VISIBLE_DEVICES to a free GPU or to a MIG slice's UUID, {_CPU}",
    ),
    (
        "ECC error|fallen off the bus|GPU is lost|unspecified launch failure|misaligned address",
        "the GPU has failed",
        f"Check it (nvidia-smi, dmesg) and use another one. {_AGAIN}",
    ),
    (
        "device-side assert|illegal memory access",
        "the GPU stopped at a wrong index or address, which is a mistake in the program",
        "Please report it with the command; hardware=cpu names the line.",
    ),
    (
        "NCCL (error|WARN)|ncclUnhandled|ncclSystem|ncclRemote|ncclInternal",
        "the GPUs cannot exchange data",
        f"Set NCCL_DEBUG=INFO to see why; a rank or the network between them failed. {_AGAIN}",
    ),
    (
        "CUDA (driver )?error|CUDA unknown error|cuDNN error|CUBLAS_STATUS|cudaGetDeviceCount",
        "CUDA reports an error",
        f"Check the driver (nvidia-smi) and CUDA_VISIBLE_DEVICES, {_CPU}",
    ),
)
"""Errors of a GPU: how a library tells them, what it means, and what to type."""
_SIZES = re.compile("index out of range in self|size calculation overflowed")
_OF_MODEL = (
    "Check the folder of the model: config.json, the tokenizer and the weights have to belong "
    "together."
)
_DAMAGED = "A file is damaged, or not of this format. Write it again, or name another one."


class UserError(Exception):
    """A wrong input. It is printed without a traceback; the exit code is 1 and there is no result.

    The message names the value, the allowed values and what to type.
    """


class MemoryRanOut(UserError):
    """A device has too little memory for a run."""


class RunFailed(Exception):
    """Training failed, for example with an infinite loss. The run is recorded as failed."""


class RankLost(Exception):
    """A rank ended too early. Nothing is recorded, and the same command resumes the run."""


@contextmanager
def named(file: Path, draft: Path | None = None) -> Iterator[None]:
    """Name the file in an error of the system that names none; remove its draft after any error.

    Raises:
        OSError: with `filename`, also where a library tells it in words.
    """
    try:
        yield
    except BaseException as error:
        if draft is not None:
            with suppress(OSError):
                draft.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno is not None and error.filename is None:
            error.filename = str(file)
        if (system := system_error(error)) is not None:
            system.filename = str(file)
            raise system from error
        raise


def system_error(error: BaseException) -> OSError | None:
    """Return the error of the system that a library tells in words, as safetensors does."""
    found = None if isinstance(error, OSError) else _OF_SYSTEM.search(str(error))
    if found is None or type(error).__module__.partition(".")[0] not in _LIBRARIES:
        return None
    return OSError(int(found[1]), os.strerror(int(found[1])))


def explained(error: BaseException) -> UserError | None:
    """Return what the user can do about an error; None if it is a mistake in the program."""
    if isinstance(error, MemoryError):
        return UserError(f"out of memory{_text(error)}. {_ADVICE[errno.ENOMEM]}")
    if "DefaultCPUAllocator" in str(error):
        more = "Sizes of a config.json that no machine holds do this, too."
        return UserError(f"out of memory{_text(error)}. {_ADVICE[errno.ENOMEM]} {more}")
    if is_panic(error):
        return UserError(f"a library written in Rust failed{_text(error)}. {_OF_MODEL}")
    if isinstance(error, IndexError | RuntimeError) and _SIZES.search(str(error)):
        return UserError(f"a size or a token id fits no table{_text(error)}. {_OF_MODEL}")
    if (told := of_device(error)) is not None:
        return told
    if isinstance(error, OSError):
        return UserError(_of_system(error))
    if (system := system_error(error)) is not None:
        return UserError(_of_system(system))
    library = type(error).__module__.partition(".")[0]
    if isinstance(error, UnicodeError):
        return UserError(f"a text is not UTF-8{_text(error)}. {_DAMAGED}")
    if mark := getattr(error, "problem_mark", None):
        place = f"{mark.name}:{mark.line + 1}"
        return UserError(f"{place}: not YAML ({getattr(error, 'problem', error)}). {_DAMAGED}")
    if library in _LIBRARIES:
        return UserError(f"{library}: not readable{_text(error)}. {_DAMAGED}")
    return None


def is_panic(error: BaseException) -> bool:
    """Return whether a library written in Rust gave up; the error is no `Exception`."""
    return type(error).__name__ == "PanicException"


def of_device(error: BaseException) -> UserError | None:
    """Return what the user can do about an error of a GPU; None if it is another error."""
    if not isinstance(error, RuntimeError | AssertionError):
        return None
    for pattern, meaning, advice in _OF_DEVICE:
        if re.search(pattern, str(error)) and _is_of_device(str(error)):
            return UserError(f"{meaning}{_text(error)}. {advice}")
    return None


def _is_of_device(text: str) -> bool:
    """Return whether a message is of a GPU: a CPU runs out of memory too."""
    return re.search("CUDA|cuda|cuDNN|NVIDIA|NCCL|nccl|CUBLAS|GPU|device", text) is not None


def _of_system(error: OSError) -> str:
    """Return path, cause and advice; the path of the cause if the error has none."""
    paths = [str(path) for path in (error.filename, error.filename2) if path is not None]
    if not paths and not _has_folder():
        folder = os.environ.get("PWD", "the current folder")
        return (
            f"{folder}: the current folder was removed. Type cd DIR, then the same command again."
        )
    cause = error.strerror or str(error).partition("\n")[0] or type(error).__name__
    advice = _ADVICE.get(error.errno or 0, _PATH if paths else "")
    return f"{' -> '.join(paths) or 'the system'}: {cause.rstrip('.')}. {advice}".rstrip()


def _has_folder() -> bool:
    """Return whether the current folder exists."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True


def _text(error: BaseException) -> str:
    """Return the first line of an error in brackets."""
    line = str(error).strip().partition("\n")[0][:200].rstrip(".")
    return f" ({line})" if line else ""


# Suggest a word: the closest one, or the name or line that a word of another tool stands for here.

_SUGGESTED = 3  # names that are suggested
_SHORTEST = 3  # letters of a part of a name
_LINES = {
    "train.lr=VALUE": "learning_rate",
    "train.epochs=VALUE": "num_train_epochs num_epochs",
    "train.batch_size=VALUE": "per_device_train_batch_size train_batch_size",
    "train.max_steps=VALUE": "steps max_train_steps num_steps",
    "train.clip=VALUE": "max_grad_norm gradient_clipping",
    "train.warmup=VALUE": "warmup_ratio warmup_steps",
    "train.patience=VALUE": "early_stopping early_stopping_patience",
    "train.schedule=VALUE": "lr_scheduler lr_scheduler_type",
    "train.eval_every=VALUE": "eval_steps",
    "train.weight_decay=VALUE": "wd",
    "method.length=VALUE": "num_virtual_tokens pre_seq_len prompt_length prefix_length",
    "method.rank=VALUE": "r lora_r",
    "method.alpha=VALUE": "lora_alpha",
    "method.dropout=VALUE": "lora_dropout",
    "method.targets=VALUE": "target_modules",
    "hardware.precision=bf16": "fp16 bf16 amp mixed_precision dtype",
    "hardware.checkpointing=true": "gradient_checkpointing",
    "hardware.ranks=NUMBER": "gpus num_gpus world_size nproc_per_node",
    "hardware.quantization=nf4": "load_in_4bit load_in_8bit nf4",
    "method=ptuning_v2": "prefix prefix_tuning",
    "method=prompt_tuning": "soft_prompt prompt",
    "method=fine_tuning": "finetune full_fine_tuning",
    "method=lora": "qlora",
    "hardware=gpu": "cuda device",
    "hardware=zero1": "deepspeed",
    "readout=verbalizer": "mlm verbalizer",
    "setting=few_shot": "shots num_shots k_shot",
    "tracking=none": "off false",
    "tracking=wandb": "wandb report_to logger",
    "run": "train fit start",
    "predict": "infer inference evaluate eval test generate",
    "report": "results table summary",
    "search": "tune hpo optuna",
    "backbone": "model",
    "backbone=NAME (ptrun list backbone) or backbone.path=FOLDER": "model_name model_name_or_path "
    "pretrained_model_name_or_path checkpoint tokenizer",
    "task": "dataset data",
    "task=NAME (ptrun list task), or task=csv task.train=FILE for a file": "dataset_name task_name "
    "csv file train_file",
    "task=csv task.train=FILE task.text=COLUMN task.label=COLUMN": "text label text_column "
    "label_column",
    "seed": "random_seed",
    "-m seed=1,2,3": "seeds num_seeds",
    "outputs": "output_dir save_dir",
    "ptrun -m KEY=VALUE,VALUE": "sweep multirun",
    "the same command again: it goes on from the last save": "resume resume_from_checkpoint",
    "ptrun --version": "version",
}
"""What to type for words of other tools; where its key or option is allowed, that is suggested."""


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'x'?` or `; type LINE`, or an empty string.

    Args:
        word: what was typed: a key, an option or a command.
        known: what is allowed there.
    """
    names = list(known)
    same = _same(word, names)
    lines = [line for line in _LINES if _bare(word) in _words(line)]
    top = "backbone" in names or "predict" in names  # root keys, groups or commands
    if lines and top and not same:
        return f"; type {lines[0]}."
    close = same or _close(word, names)
    listed = " or ".join(f"'{name}'" for name in close[:_SUGGESTED])
    return f"; did you mean {listed}?" if close else ""


def meant(word: str, known: Iterable[str]) -> str | None:
    """Return the one known name that a word of another tool stands for, or None."""
    names = _same(word, list(known))
    return names[0] if len(names) == 1 else None


def _bare(word: str) -> str:
    return re.sub(r"[\W_]", "", word.lower())


def _name(line: str) -> str:
    """Return the key of a part, or the option, that a line sets."""
    key, _, value = line.partition("=")
    return key.rpartition(".")[2] if "." in key else value or key


def _words(line: str) -> set[str]:
    """Return the words that a line is for, without signs."""
    return {_bare(word) for word in (*_LINES[line].split(), _name(line))}


def _same(word: str, names: Sequence[str]) -> list[str]:
    """Return the name with the same letters, or those that the word stands for."""
    same = [name for name in names if _bare(name) == _bare(word)]
    stands = {_name(line) for line in _LINES if _bare(word) in _words(line)}
    return same or [name for name in names if name in stands]


def _close(word: str, names: Sequence[str]) -> list[str]:
    """Return the names that begin or end with the word, or the most similar one."""
    last = _bare(word.rpartition("/")[2])
    parts = [n for n in names if _bare(n).startswith(last) or _bare(n).endswith(last)]
    if len(last) < _SHORTEST:
        parts = []
    return parts or difflib.get_close_matches(word, names, n=1, cutoff=0.6)


def unknown(what: str, word: str, known: Iterable[str]) -> str:
    """Return the message for a word that is not one of the known words."""
    names = sorted(known)
    return f"{what}: unknown{suggestion(word, names) or '.'} Allowed: {', '.join(names)}."


# Text of somebody else for a terminal, which would obey its control characters.

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """Return text whose control characters are written out: an escape becomes four letters."""
    if text.isprintable():
        return text
    plain = _CONTROL.sub(lambda found: repr(found[0])[1:-1], text)
    return plain.encode("utf-8", "backslashreplace").decode()  # a file's name may be no UTF-8


def readable(text: str) -> str:
    """Return text whose control characters are written out, except line breaks."""
    return "\n".join(map(visible, text.split("\n")))


def folded(text: str, file: TextIO | None = None) -> str:
    """Return text for a terminal, its long lines divided between words; for a file as it is.

    What follows a line is indented by two spaces more.
    """
    if not (file or sys.stdout).isatty():
        return text
    width, lines = shutil.get_terminal_size().columns, []
    for line in text.split("\n"):
        indent = " " * min(len(line) - len(line.lstrip()) + 2, width // 2)
        words = textwrap.TextWrapper(
            width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )
        long = len(line) > width and " " in line.strip()
        lines.append(words.fill(line) if long else line)
    return "\n".join(lines)


def plain_json(text: str) -> str:
    """Return JSON whose control characters are escaped, as JSON may: the content is the same."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def all_readable(content: Any) -> Any:
    """Return plain data whose texts are readable, keys included."""
    if isinstance(content, str):
        return readable(content)
    if isinstance(content, dict):
        return {all_readable(key): all_readable(value) for key, value in content.items()}
    return [all_readable(one) for one in content] if isinstance(content, list) else content


# Values and names from a user's file, short and on one line for error messages.

_LONGEST = 120  # characters of a value
_NAMES = 20
_SHORT = Repr()  # fast on large and deep values
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxlong, _SHORT.maxother = 3, 60, 40, 60


@cache
def warn_once(line: str) -> None:
    """Log a warning unless this process did: what reads the same data again says it once."""
    logging.getLogger("ptrun").warning("%s", line)


def shown(value: Any) -> str:
    """Return `repr(value)`, cut to 120 characters."""
    return _cut(_SHORT.repr(value), _LONGEST)


def names(listed: Iterable[str]) -> str:
    """Return the first 20 names, separated by commas; long names are cut."""
    every = [_cut(n if n.isprintable() else repr(n[:30]), 30) for n in listed]
    more = f" and {len(every) - _NAMES} more" if len(every) > _NAMES else ""
    return ", ".join(every[:_NAMES]) + more


def near(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'x'?` for the most similar known name, or an empty string."""
    close = difflib.get_close_matches(word, [k[:80] for k in known], n=1, cutoff=0.6)
    return f"; did you mean {shown(close[0])}?" if close else ""


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 3]}..."
