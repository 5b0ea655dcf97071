"""A folder that appears complete or not at all, and a progress bar."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from ptrun.errors import UserError, named

_SPARE_BYTES = 2**23  # configuration, index and tokenizer


def check_new(out: Path) -> None:
    """Raise a UserError if `out` is a file, or a folder that is not empty."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out}: exists and is not empty; give a new folder.")


@contextmanager
def staging(out: Path, nbytes: int) -> Iterator[Path]:
    """Yield a folder beside `out` that is renamed to `out` at the end; an error removes it."""
    out = out.absolute()
    folder = out.with_name(f".{out.name}.{os.getpid()}.partial")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(out.parent).free
        if free < nbytes + _SPARE_BYTES:
            raise UserError(
                f"{out}: {nbytes / 1e9:.1f} GB are needed there, {free / 1e9:.1f} GB are free."
            )
        folder.mkdir()
        with named(out):
            yield folder
        folder.replace(out)
    except OSError as error:
        raise UserError(f"{out}: cannot be written ({error.strerror or error}).") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def progress(nbytes: int, doing: str = "importing") -> Iterator[Callable[[int], None]]:
    """Yield a function that advances a progress bar, shown if standard error is a terminal."""
    columns = (TextColumn(doing), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(
        *columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()
    ) as bar:
        task = bar.add_task(doing, total=nbytes)
        yield lambda done: bar.advance(task, done)
