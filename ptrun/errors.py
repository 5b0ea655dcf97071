"""Errors that the user can fix, failures of a valid run, and errors of the system in words.

Readers and writers raise `UserError` where they know more. The command line, the workers of a
sweep and the ranks of a run turn an error of the system or of a file format into one.
"""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

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
    errno.EMFILE: f"Raise the limit of open files (ulimit -n), {_SAME}",
    errno.ENFILE: f"The machine has too many open files; close some, {_SAME}",
    errno.EIO: f"The disk or the network failed. Check it, {_SAME}",
    errno.ESTALE: f"The shared file system lost the file. Check it, {_SAME}",
    errno.ENOMEM: "Free memory, or lower train.batch_size or hardware.token_budget.",
}
_LIBRARIES = ("safetensors", "safetensors_rust", "pyarrow", "yaml", "json")
_OF_SYSTEM = re.compile(r"\(os error (\d+)\)")
_DAMAGED = "A file is damaged, or not of this format. Write it again, or name another one."


class UserError(Exception):
    """A wrong input. It is printed without a traceback; the exit code is 1 and there is no result.

    The message names the value, the allowed values and what to type.
    """


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
