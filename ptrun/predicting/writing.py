"""Where answers go: standard output, or a file that is there whole or not at all."""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO

from ptrun.errors import UserError


class Lines:
    """Takes lines; what was taken is seen at once by who reads along."""

    def __init__(self, opened: TextIO, name: str):
        self._opened, self._name = opened, name

    def write(self, lines: Iterable[str]) -> None:
        """Write lines.

        Raises:
            UserError: there is no room for them.
            BrokenPipeError: nobody reads them any more.
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
    """Yield what takes the lines of a file, which gets its name when all are there.

    Raises:
        UserError: there is such a file, no folder for it, or it cannot be written.
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
        raise UserError(f"--output {file}: there is such a file; give another name, or remove it.")
    if not file.parent.is_dir():
        raise UserError(f"--output {file}: no folder {file.parent}; make it first.")


def _unwritable(name: str, error: OSError) -> UserError:
    return UserError(f"{name}: cannot be written ({error.strerror}).")
