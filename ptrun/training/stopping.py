"""Signals that end a command: training saves at the next step; anything else ends at once.

INT (Ctrl-C), TERM, HUP and USR1 are handled alike. Clusters send USR1 or TERM before a time limit.
A second signal ends the command without waiting for the step. Another signal less than a second
after the first is taken for the same stop: a cluster signals a command and its workers, and the
command then stops its workers too.
"""

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
_training = False
_received: int | None = None
_raised: "Stopped | None" = None
_since = 0.0  # seconds on the monotonic clock
_ONE_STOP = 1.0  # seconds


class Stopped(BaseException):
    """A signal ended the command. Like `KeyboardInterrupt` it is no `Exception`.

    Args:
        number: the signal.
        saved: the step at which each run was saved; None if no training was going on.
    """

    def __init__(self, number: int, saved: int | None = None):
        super().__init__(number, saved)
        self.number, self.saved = number, saved

    def __str__(self) -> str:
        """Return what the user reads."""
        name = signal.Signals(self.number).name
        if self.saved is None:  # a command that trains nothing, or not yet
            return f"stopped by {name}; type the same command again"
        return (
            f"stopped by {name}, saved at step {self.saved}; the same command resumes from the "
            "last save"
        )


def install() -> None:
    """Handle the signals in this process from here on; those that nohup ignores stay ignored."""
    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, _receive)


def uninstall() -> None:
    """Let signals end this process at once: what is left to do cannot be stopped halfway."""
    for number in SIGNALS:
        if signal.getsignal(number) is _receive:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def heard() -> Iterator[None]:
    """Raise `Stopped` in place of an error of the code that it interrupted.

    A library that cleans up after an exception may fail at it, because it was not done yet.
    """
    global _raised
    _raised = None
    try:
        yield
    except Exception:
        if _raised is not None:
            raise _raised from None
        raise


@contextmanager
def training() -> Iterator[None]:
    """Let signals wait for the end of a step."""
    global _training, _received
    outer, _training = _training, True
    try:
        yield
    finally:
        _training = outer
        if not outer:
            _received = None


def received() -> int | None:
    """Return the signal that arrived during training."""
    return _received


def _receive(number: int, _: FrameType | None) -> None:
    global _received, _since, _raised
    now = time.monotonic()
    if _received not in (None, number) and now - _since < _ONE_STOP:
        return
    if not _training or _received is not None:
        _raised = Stopped(number)
        raise _raised
    _received, _since = number, now
    name = signal.Signals(number).name
    print(f"{name}: saving at the next step; send it again to end at once", file=sys.stderr)
