"""The output of predictions: standard output, or a file that appears only when it is complete."""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO

from ptrun.errors import UserError


class Lines:
    """A text output that flushes after each write."""

    def __init__(self, opened: TextIO, name: str):
        self._opened, self._name = opened, name

    def write(self, lines: Iterable[str]) -> None:
        """Write lines.

        Raises:
            UserError: the output cannot be written, as on a full disk.
            BrokenPipeError: the reader has closed the pipe.
        """
        try:
            self._opened.writelines(f"{line}\n" for line in lines)
            self._opened.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise _unwritable(self._name, error) from error


@contextmanager
def lines_to(file: Path | None) -> Iterator[Lines]:
    """Yield an output for lines. A file gets its name after the last line.

    Raises:
        UserError: the file exists, its folder is missing, or it cannot be written.
    """
    if file is None:
        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")
        yield Lines(sys.stdout, "standard output")
        return
    _check_new(file)
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        opened = draft.open("w", encoding="utf-8")
    except OSError as error:
        raise _unwritable(str(file), error) from error
    try:
        with opened:
            yield Lines(opened, str(file))
            os.fsync(opened.fileno())
        _check_new(file)
        draft.replace(file)
    finally:
        with suppress(FileNotFoundError):
            draft.unlink()


def _check_new(file: Path) -> None:
    if file.exists():
        raise UserError(f"--output {file}: the file exists. Type another name, or remove it.")
    if not file.parent.is_dir():
        raise UserError(f"--output {file}: the folder {file.parent} is missing. Make it first.")


def _unwritable(name: str, error: OSError) -> UserError:
    return UserError(f"{name}: cannot be written ({error.strerror}).")
