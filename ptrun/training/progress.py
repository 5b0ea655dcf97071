"""A progress bar with loss, dev metric, tokens a second and time left; piped, a line a minute."""

import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

import rich.progress
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

_LOG = logging.getLogger(__name__)
_EVERY = 60.0  # seconds between two lines
T = TypeVar("T")
_silent: ContextVar[bool] = ContextVar("silent", default=False)


@contextmanager
def silent() -> Iterator[None]:
    """Draw nothing, on a terminal either."""
    before = _silent.set(True)
    try:
        yield
    finally:
        _silent.reset(before)


def _is_drawn() -> bool:
    return sys.stderr.isatty() and not _silent.get()


@contextmanager
def meter(total: int, before: int, *, quiet: bool = False) -> Iterator[Callable[..., None]]:
    """Yield what shows the progress of training: a line on a terminal, else a logged one a minute.

    It takes the steps of all members that are done, a loss, the name of the metric on dev with its
    best value or None, and the tokens just computed. `total` and `before` count steps too.
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total} steps"),
        TimeRemainingColumn(),
    )
    drawn = not quiet and _is_drawn()
    speaks = not (quiet or drawn or _silent.get())
    started = spoken = time.monotonic()
    computed = 0
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not drawn) as bar:
        task = bar.add_task("training", total=total, completed=before)

        def show(done: int, loss: float, metric: str, best: float | None, tokens: int) -> None:
            nonlocal computed, spoken
            computed += tokens
            now = time.monotonic()
            dev = "" if best is None else f" · best dev {metric} {best:.1f}"
            text = f"loss {loss:.3f}{dev} · {computed / max(1e-6, now - started):,.0f} tokens/s"
            bar.update(task, completed=done, description=text)
            if speaks and now - spoken >= _EVERY and done > before:
                spoken = now
                left = round((now - started) / (done - before) * (total - done) / 60)
                _LOG.info("step %d of %d · %s · %d min left", done, total, text, left)

        yield show


def track(parts: Sequence[T], title: str) -> Iterator[T]:
    """Yield the parts of work before training, with a progress bar on a terminal."""
    if not (parts and _is_drawn()):
        yield from parts
        return
    console = Console(stderr=True)
    yield from rich.progress.track(parts, title, console=console, transient=True)
