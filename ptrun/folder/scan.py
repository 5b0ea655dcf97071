"""The runs below a folder, how far each is, and its last step."""

import os
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from ptrun.errors import UserError
from ptrun.files import from_json, opened, opened_tensors
from ptrun.folder import digest, lease, request, result
from ptrun.folder.digest import is_number, unpacked

# The state of a run, read from its folder: the folders are all the memory that sweeps have.

Kind = Literal["new", "queued", "running", "interrupted", "failed", "finished", "damaged"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""`queued` is said of runs in the queue of a cluster; their folders do not know it."""


@dataclass(frozen=True)
class RunState:
    """The kind of a state, and its detail: who runs it, at which step, why it failed.

    `group` has the runs that shared passes with an interrupted run.
    """

    kind: Kind
    detail: str = ""
    group: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the state in words."""
        separator = {"running": " by ", "interrupted": " ", "queued": " "}.get(self.kind, ": ")
        return f"{self.kind}{separator}{self.detail}" if self.detail else self.kind


def state_of(folder: Path) -> RunState:
    """Return the state of a run folder, which need not exist."""
    try:
        done = result.read_named(folder)
    except UserError as error:
        return RunState("damaged", str(error))
    if done is not None and done.status == "finished":
        return RunState("finished")
    if (owner := lease.owner(folder)) is not None:
        return RunState("running", str(owner))
    if done is not None:
        return RunState("failed", str(done.reason))
    if not folder.is_dir():
        return RunState("new")
    saved = [_saved(file) for file in sorted(folder.glob("*state.safetensors"))]
    if not saved:
        return RunState("interrupted", "before its first save")
    step = sum(state.get("step", 0) for state in saved)
    return RunState("interrupted", f"at step {step}", tuple(saved[0].get("group", ())))


def _saved(file: Path) -> dict[str, Any]:
    """Return the plain part of a state, without importing torch; nothing if it is damaged."""
    try:
        with opened_tensors(file) as tensors:
            state = dict(from_json(unpacked(tensors.metadata())["state"]))
        begin, seconds = state.get("pace") or (0, 0.0)
        return {
            "step": int(state["step"]),
            "of": int(state.get("of", 0)),
            "per_second": (int(state["step"]) - int(begin)) / seconds if seconds > 0 else 0.0,
            "group": list(map(str, state.get("group", ()))),
            "history": [dict(row) for row in state.get("history", ())],
        }
    except (OSError, *digest.DAMAGES):
        return {}


_FILES = {result.FINISHED, result.FAILED, request.FILE}
_TAIL = 20_000  # bytes of a journal that are read for the last step
_NO_SCORE = ("event", "step", "epoch", "part", "loss")


@dataclass(frozen=True)
class Progress:
    """How far a run is: its last step, the steps in all and the seconds left, if they are known.

    Args:
        step: the last step; 0 before the first.
        of: the steps in all; 0 before the first save, and of a run that has parts.
        seconds_left: at the pace so far.
        dev: the last dev score, with its name.
    """

    step: int = 0
    of: int = 0
    seconds_left: float | None = None
    dev: str = ""

    def __str__(self) -> str:
        """Return `step 192 of 500, about 3 min left`."""
        if not self.step:
            return "loading"
        total = f" of {self.of:,}" if self.of else ""
        left = self.seconds_left
        told = "" if left is None else f", about {duration(left)} left"
        return f"step {self.step:,}{total}{told}"


def duration(seconds: float | None) -> str:
    """Return seconds in seconds, minutes or hours; `-` if they are not known."""
    if seconds is None:
        return "-"
    if seconds < 90:
        return f"{seconds:.2g} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:,.1f} h"


@dataclass(frozen=True)
class Known:
    """A run folder with its state, how far it is, and the ids of the runs that it needs."""

    folder: Path
    state: RunState
    progress: Progress = Progress()
    needs: tuple[str, ...] = ()

    def plain(self) -> dict[str, Any]:
        """Return the fields as plain data."""
        state, left = self.state, self.progress.seconds_left
        place = {"folder": str(self.folder), "state": state.kind, "detail": state.detail}
        left = left and round(left)
        return {**place, **vars(self.progress), "seconds_left": left, "needs": [*self.needs]}


def runs(root: Path) -> list[Known]:
    """Return the runs below a folder, without those that `rerun=true` set aside."""
    scanned = []
    for folder in sorted(folders(root)):
        state = state_of(folder)
        goes_on = state.kind in ("running", "interrupted")
        so_far = progress(folder) if goes_on else Progress()
        needs = () if state.kind == "finished" else request.needs(folder)
        scanned.append(Known(folder, state, so_far, needs))
    return scanned


def unfinished(root: Path, ended: Container[Path]) -> Counter[str]:
    """Return how many runs below a folder are in each state, beside those that have ended."""
    return Counter(state_of(folder).kind for folder in folders(root) if folder not in ended)


def folders(root: Path) -> Iterator[Path]:
    """Yield run folders, and those that a process is about to create."""
    for place, inner, files in os.walk(root):
        if not _FILES.isdisjoint(files):
            if "~" not in os.path.basename(place):
                yield Path(place)
            inner.clear()
            continue
        owners = [f for f in files if f.startswith(".") and f.endswith(".owner")]
        early = [name[1:].removesuffix(".owner") for name in owners]
        yield from (Path(place, name) for name in early if name not in inner)


def progress(folder: Path) -> Progress:
    """Return how far the run of a folder is, from its journal and its last save."""
    saved = [state for file in folder.glob("*state.safetensors") if (state := _saved(file))]
    step, dev = _journal(folder, saved[0]["history"] if len(saved) == 1 else [])
    if len(saved) != 1 or not saved[0]["of"]:  # parts have their own
        return Progress(step, dev=dev)
    (state,) = saved
    left = (state["of"] - step) / state["per_second"] if state["per_second"] else None
    return Progress(step, state["of"], left and max(0.0, left), dev)


def _journal(folder: Path, history: Sequence[dict[str, Any]]) -> tuple[int, str]:
    """Return the last step and dev score at the end of a journal; `history` ends at the save."""
    file = folder / "metrics.jsonl"
    try:
        with opened(file) as source:
            source.seek(max(0, os.fstat(source.fileno()).st_size - _TAIL))
            lines = source.read(_TAIL).decode("utf-8", "replace").split("\n")
    except OSError:
        return 0, ""
    step, evaluated = 0, [*history[-1:]]
    for line in lines:
        try:
            row = digest.row(line)
        except ValueError:  # cut at either end, or damaged: resuming names it
            continue
        step = max(step, row.get("step", 0))
        if row.get("event") == "dev":
            evaluated.append(row)
    scores = [
        f"{key} {value:.1f}"
        for key, value in (evaluated or [{}])[-1].items()
        if key not in _NO_SCORE and is_number(value)
    ]
    return step, next(iter(scores), "")
