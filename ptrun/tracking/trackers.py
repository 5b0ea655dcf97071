"""`tracking=wandb`, `tracking=[wandb,mlflow]`: the trackers of a run."""

import logging
import os
import queue
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from typing import Any, Protocol

from ptrun.errors import UserError
from ptrun.types import RunResult

_LOG = logging.getLogger(__name__)


class Tracker(Protocol):
    """An outside place that shows the rows of `metrics.jsonl`; one thread alone uses it.

    A tracker is made of `(folder, run_id, config, *, OPTION=...)`, ptrun's as your own.

    Args:
        folder: the run folder.
        run_id: the id of the run; a run that is resumed goes on under the same id.
        config: the configuration that can change a number.
    """

    def open(self) -> None:
        """Connect. It is called in the tracker's thread, so it may take some seconds."""

    def log(self, numbers: Mapping[str, float], step: int | None) -> None:
        """Show numbers at a step."""

    def finish(self, result: RunResult | None) -> None:
        """Show the final metrics and close; None is a run that was interrupted."""


def numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a row, prefixed with its event and part."""
    prefix = "/".join(str(row[key]) for key in ("part", "event") if row.get(key))
    return {
        f"{prefix}/{key}": float(value)
        for key, value in row.items()
        if key != "step" and isinstance(value, int | float)
    }


def final(result: RunResult | None) -> dict[str, float]:
    """Return the final metrics by name; an interrupted run has none."""
    return {
        f"final/{part}/{name}": float(value)
        for part, metrics in (result.metrics.items() if result else ())
        for name, value in metrics.items()
    }


def where(tracking: Mapping[str, Any], folders: Sequence[Path]) -> str:
    """Return where ptrun's own trackers have the rows of runs, in a line for each tracker."""
    top = Path(os.path.commonpath(folders))
    runs = top.joinpath(*"*" * (len(folders[0].parts) - len(top.parts)))
    offline = f"offline. Type: wandb sync {runs}/wandb/offline-run-*"
    uri = (tracking.get("mlflow") or {}).get("uri") or runs.parent / "mlflow.db"
    uri = re.sub(r"//[^/@]*@", "//", str(uri))  # without a password
    places = {"tensorboard": f"in {runs}/tensorboard", "mlflow": f"in {uri}"}
    places |= {"wandb": offline, "trackio": "type: trackio show"}
    names = [name for name in places if tracking.get(name) is not None]
    if "wandb" in names and import_module("ptrun.tracking.wandb").has_key():
        places["wandb"] = "the rows were sent"
    return "".join(f"tracking={name}: {places[name]}\n" for name in names)


# A guard: it calls a tracker from a thread of its own, and gives it up when it fails or hangs.

PATIENCE = 10.0
"""Seconds that one call may take."""
_POLL = 0.05  # seconds
_DRAIN, _INTERRUPTED = 60.0, 2.0  # seconds that the end of a run may wait for a tracker
_PACKAGES = {"tensorboard": "torch.utils.tensorboard"}  # others have the name of the tracker
_hanging: list[str] = []  # trackers that did not answer


def leave(code: int) -> None:
    """End the process at once if a tracker hangs: its own cleanup might wait for minutes."""
    if _hanging:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


class TrackerGuard:
    """Passes rows to a tracker in order. After an error or a call of 10 seconds it warns and stops.

    It imports `package` first, which may take longer, and opens the tracker.
    """

    def __init__(self, name: str, package: str, tracker: Tracker):
        self.name, self.package, self.tracker = name, package, tracker
        self.off = False
        self.since: float | None = None  # when the call began that is going on
        self.calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    def log(self, row: Mapping[str, Any]) -> None:
        """Pass a row on; return at once."""
        if not self._hangs():
            step = row.get("step")
            self.calls.put(lambda: self.tracker.log(numbers(row), step))

    def finish(self, result: RunResult | None) -> None:
        """Pass the result on, and wait until the tracker has closed, but not for long."""
        self.calls.put(lambda: self.tracker.finish(result))
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
            self._timed(self.tracker.open)
            while (call := self.calls.get()) is not None and not self.off:
                self._timed(call)
        except BaseException as error:  # a tracker may even call sys.exit
            text = (str(error).strip() or "no message").splitlines()[0]
            self._turn_off(f"{type(error).__name__}: {text}")

    def _timed(self, call: Callable[[], None]) -> None:
        self.since = time.monotonic()
        try:
            call()
        finally:
            self.since = None


class Trackers:
    """Sends the rows of a run to any number of trackers; none of them can fail or delay the run.

    Trackers without options (None) are left out; `own` are your own by name, each a `Tracker`.
    """

    def __init__(
        self,
        folder: Path,
        run_id: str,
        config: Mapping[str, Any],
        *,
        wandb: Mapping[str, Any] | None = None,
        tensorboard: Mapping[str, Any] | None = None,
        mlflow: Mapping[str, Any] | None = None,
        trackio: Mapping[str, Any] | None = None,
        own: Mapping[str, Any] | None = None,
    ):
        stock = {"wandb": wandb, "tensorboard": tensorboard, "mlflow": mlflow, "trackio": trackio}
        self.guards: list[TrackerGuard] = []
        for name, options in stock.items():
            if options is None:
                continue
            if find_spec(name) is None:
                raise UserError(f"tracking={name} needs {name}. Type: pip install 'ptrun[{name}]'")
            kind: Any = import_module(f"ptrun.tracking.{name}").TRACKER
            parameters = signature(kind).parameters.values()
            allowed = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
            if unknown := set(options) - set(allowed):
                told = f"Options of {name}: {', '.join(allowed) or 'none'}."
                raise UserError(f"tracking.{name}.{min(unknown)}: unknown. {told}")
            tracker = kind(folder, run_id, config, **options)
            self.guards.append(TrackerGuard(name, _PACKAGES.get(name, name), tracker))
        for name, tracker in (own or {}).items():
            self.guards.append(TrackerGuard(name, __name__, tracker))

    def log(self, row: Mapping[str, Any]) -> None:
        """Pass a row on."""
        for guard in self.guards:
            guard.log(row)

    def finish(self, result: RunResult | None) -> None:
        """Close all trackers; None is a run that was interrupted."""
        for guard in self.guards:
            guard.finish(result)
