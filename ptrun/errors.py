"""Errors that the user can fix, failures of a valid run, and the words of messages."""

import difflib
import errno
import logging
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
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
_MANY = f"Close files, or raise the limit of open ones (ulimit -n), {_SAME}"
_PATH = "Check the path; outputs=DIR sets the folder of runs."
_LOST = f"The disk or the network failed. Check it, {_SAME}"
_MEMORY = "Free memory, or lower train.batch_size or hardware.token_budget."
_ADVICE = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), _FULL),
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), _RIGHTS),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), _MANY),
    **dict.fromkeys((errno.EIO, errno.ESTALE), _LOST),
    errno.EFBIG: f"Raise the limit of the size of a file (ulimit -f), {_SAME}",
    errno.ENAMETOOLONG: "Type a shorter name: name=NAME or outputs=DIR.",
    errno.ENOMEM: _MEMORY,
}
_LIBRARIES = ("safetensors", "safetensors_rust", "pyarrow", "yaml", "json")
_OF_SYSTEM = re.compile(r"\(os error (\d+)\)")
_OF_DEVICE: Mapping[str, tuple[str, str]] = {
    "out of memory|ALLOC_FAILED": (
        "the GPU is out of memory",
        "Close what else uses it (nvidia-smi lists it), lower hardware.token_budget or "
        "train.batch_size, or see what fits: ptrun plan with the same options.",
    ),
    "no kernel image|not compatible with|driver on your|driver version|no NVIDIA|not compiled": (
        "this torch cannot use this GPU",
        "Install a build of torch that supports the GPU and its driver, or type hardware=cpu.",
    ),
    "NCCL|nccl": (
        "the GPUs cannot exchange data",
        f"Set NCCL_DEBUG=INFO to see why; a rank or the network failed. Check it, {_SAME}",
    ),
    "CUDA|cuda|cuDNN|CUBLAS": (
        "CUDA reports an error",
        "Check the GPU (nvidia-smi, dmesg) and CUDA_VISIBLE_DEVICES, or type hardware=cpu; the "
        "same command resumes from the last save.",
    ),
}
"""Errors of a GPU: how a library tells them, what it means, and what to type."""
_DEVICE = re.compile("CUDA|cuda|cuDNN|NVIDIA|NCCL|nccl|CUBLAS|GPU")  # a CPU runs out of memory too
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
    """Name the file in an error of the system that names none, also where a library tells it.

    Its draft is removed after any error.
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
    if isinstance(error, MemoryError) or "DefaultCPUAllocator" in str(error):
        return UserError(f"out of memory{_text(error)}. {_MEMORY}")
    if is_panic(error) or (
        isinstance(error, IndexError | RuntimeError) and _SIZES.search(str(error))
    ):
        return UserError(f"the model cannot be computed{_text(error)}. {_OF_MODEL}")
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
    text = str(error)
    if not isinstance(error, RuntimeError | AssertionError) or not _DEVICE.search(text):
        return None
    for pattern, (meaning, advice) in _OF_DEVICE.items():
        if re.search(pattern, text):
            return UserError(f"{meaning}{_text(error)}. {advice}")
    return None


def _of_system(error: OSError) -> str:
    """Return path, cause and advice; the path of the cause if the error has none."""
    paths = [str(path) for path in (error.filename, error.filename2) if path is not None]
    if not paths and not os.stat(os.curdir).st_nlink:
        folder = os.environ.get("PWD", "the current folder")
        return (
            f"{folder}: the current folder was removed. Type cd DIR, then the same command again."
        )
    cause = error.strerror or str(error).partition("\n")[0] or type(error).__name__
    advice = _ADVICE.get(error.errno or 0, _PATH if paths else "")
    return f"{' -> '.join(paths) or 'the system'}: {cause.rstrip('.')}. {advice}".rstrip()


def _text(error: BaseException) -> str:
    """Return the first line of an error in brackets."""
    line = str(error).strip().partition("\n")[0][:200].rstrip(".")
    return f" ({line})" if line else ""


# Suggest a word: the closest ones, or the line that a word of another tool stands for.

_SUGGESTED = 3  # names that are suggested
_SHORTEST = 3  # letters of a part of a name
_LINES = {
    **{key: f"train.{key}=VALUE" for key in ("lr", "epochs", "batch_size", "max_steps")},
    "learning_rate": "train.lr=VALUE",
    "length": "method.length=VALUE",
    **dict.fromkeys(("device", "gpu", "cuda"), "hardware=gpu"),
    "model": "backbone=NAME or backbone.path=FOLDER",
    "dataset": "task=NAME (ptrun list task)",
    "csv": "task=csv task.train=FILE task.text=COLUMN task.label=COLUMN",
    "output_dir": "outputs=DIR",
    "seeds": "-m seed=1,2,3",
}
"""What to type for root keys that other tools have."""


def near(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'x'?` for the most similar known names, or an empty string."""
    names = [name[:80] for name in known]
    last = _bare(word.rpartition("/")[2])
    close = [name for name in names if _bare(name) == _bare(word)]
    if not close and len(last) >= _SHORTEST:
        close = [n for n in names if _bare(n).startswith(last) or _bare(n).endswith(last)]
    close = close or difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    return f"; did you mean {' or '.join(map(shown, close[:_SUGGESTED]))}?" if close else ""


def _bare(word: str) -> str:
    return re.sub(r"[\W_]", "", word.lower())


def unknown(what: str, word: str, known: Iterable[str]) -> str:
    """Return the message for a word that is not one of the known words."""
    names = sorted(known)
    line = f"; type {_LINES[word]}." if "backbone" in names and word in _LINES else ""
    return f"{what}: unknown{line or near(word, names) or '.'} Allowed: {', '.join(names)}."


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


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 3]}..."
