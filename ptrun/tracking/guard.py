"""A guard: it calls a tracker from a thread of its own, and gives it up when it fails or hangs."""

import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any

from ptrun.tracking.base import OneTracker, numbers
from ptrun.types import RunResult

_LOG = logging.getLogger(__name__)
PATIENCE = 10.0
"""Seconds that one call may take."""
_POLL = 0.05  # seconds
_DRAIN, _INTERRUPTED = 60.0, 2.0  # seconds that the end of a run may wait for a tracker
_hanging: list[str] = []  # trackers that did not answer


def leave(code: int) -> None:
    """End the process at once if a tracker hangs: its own cleanup might wait for minutes."""
    if _hanging:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


class Guard:
    """Passes rows to a tracker in order. After an error or a call of 10 seconds it warns and stops.

    Args:
        name: of the tracker, for the warning.
        package: imported first, which may take longer.
        open_: connects to the tracker.
    """

    def __init__(self, name: str, package: str, open_: Callable[[], OneTracker]):
        self.name, self.package, self.open = name, package, open_
        self.off = False
        self.since: float | None = None  # when the call began that is going on
        self.calls: queue.SimpleQueue[Callable[[OneTracker], None] | None] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    def log(self, row: Mapping[str, Any]) -> None:
        """Pass a row on; return at once."""
        if not self._hangs():
            step = row.get("step")
            self.calls.put(lambda tracker: tracker.log(numbers(row), step))

    def finish(self, result: RunResult | None) -> None:
        """Pass the result on, and wait until the tracker has closed, but not for long."""
        self.calls.put(lambda tracker: tracker.finish(result))
        self.calls.put(None)
        limit = _INTERRUPTED if result is None else _DRAIN
        ends = time.monotonic() + limit
        while self.thread.is_alive() and not self._hangs():
            self.thread.join(_POLL)
            if time.monotonic() > ends:
                self._turn_off(f"not ready after {limit:.0f} seconds")

    def _hangs(self) -> bool:
        """Return whether the tracker is off; turn it off if a call takes too long."""
        since = self.since
        if not self.off and since is not None and time.monotonic() - since > PATIENCE:
            self._turn_off(f"no answer for {PATIENCE:.0f} seconds")
            _hanging.append(self.name)
        return self.off

    def _turn_off(self, reason: str) -> None:
        if not self.off:
            self.off = True
            _LOG.warning("tracking=%s is off from here on: %s; the run goes on", self.name, reason)

    def _work(self) -> None:
        try:
            import_module(self.package)
            tracker = self._timed(self.open)
            while (call := self.calls.get()) is not None and not self.off:
                self._timed(partial(call, tracker))
        except BaseException as error:  # a tracker may even call sys.exit
            text = (str(error).strip() or "no message").splitlines()[0]
            self._turn_off(f"{type(error).__name__}: {text}")

    def _timed(self, call: Callable[[], Any]) -> Any:
        self.since = time.monotonic()
        try:
            return call()
        finally:
            self.since = None
