"""A progress bar with loss, dev metric, tokens a second and time left; piped, a line a minute."""

import logging
import sys
import time
from collections.abc import Iterator, Sequence
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


class Meter:
    """Shows the progress of training in a line that each step updates, or in one a minute.

    Args:
        bar: the line.
        total, done: steps of all members.
        speaks: whether a line is logged every minute, because nobody sees the bar.
    """

    def __init__(self, bar: Progress, total: int, done: int, *, speaks: bool = False):
        self.bar, self.total, self.before = bar, total, done
        self.task = bar.add_task("training", total=total, completed=done)
        self.started, self.tokens = time.monotonic(), 0
        self.speaks, self.spoken = speaks, self.started

    def show(self, done: int, loss: float, metric: str, best: float | None, tokens: int) -> None:
        """Update the line; `done` counts steps of all members, `tokens` those just computed."""
        self.tokens += tokens
        speed = self.tokens / max(1e-6, time.monotonic() - self.started)
        dev = "" if best is None else f" · best dev {metric} {best:.1f}"
        text = f"loss {loss:.3f}{dev} · {speed:,.0f} tokens/s"
        self.bar.update(self.task, completed=done, description=text)
        now = time.monotonic()
        if self.speaks and now - self.spoken >= _EVERY and done > self.before:
            self.spoken = now
            left = (now - self.started) / (done - self.before) * (self.total - done)
            _LOG.info("step %d of %d · %s · %d min left", done, self.total, text, round(left / 60))


@contextmanager
def meter(total: int, done: int, *, quiet: bool = False) -> Iterator[Meter]:
    """Yield a meter that draws on standard error if it is a terminal, and else logs lines."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total} steps"),
        TimeRemainingColumn(),
    )
    drawn = not quiet and _is_drawn()
    speaks = not (quiet or drawn or _silent.get())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not drawn) as bar:
        yield Meter(bar, total, done, speaks=speaks)


def track(parts: Sequence[T], title: str) -> Iterator[T]:
    """Yield the parts of work before training, with a progress bar on a terminal."""
    if not (parts and _is_drawn()):
        yield from parts
        return
    console = Console(stderr=True)
    yield from rich.progress.track(parts, title, console=console, transient=True)
