"""The runs below a folder, how far each is, and its last step."""

import json
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ptrun.errors import UserError
from ptrun.files import LIMIT, opened
from ptrun.folder import digest, lease, request, result
from ptrun.folder.digest import is_number, unpacked

# The state of a run, read from its folder: the folders are all the memory that sweeps have.

Kind = Literal["new", "queued", "running", "interrupted", "failed", "finished", "damaged"]
KINDS: tuple[Kind, ...] = (
    "new", "queued", "running", "interrupted", "failed", "finished", "damaged",
)  # fmt: skip
"""`queued` is said of runs in the queue of a cluster; their folders do not know it."""
_DAMAGES = (
    OSError,
    OverflowError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    RecursionError,
    struct.error,
)


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
        done = result.read(folder)
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
    step = sum(one.get("step", 0) for one in saved)
    return RunState("interrupted", f"at step {step}", tuple(saved[0].get("group", ())))


def _saved(file: Path) -> dict[str, Any]:
    """Return the plain part of a state, without importing torch; nothing if it is damaged."""
    try:
        with opened(file) as source:
            (size,) = struct.unpack("<Q", source.read(8))
            header = json.loads(source.read(min(size, LIMIT)))
        found = dict(json.loads(unpacked(header["__metadata__"])["state"]))
        return {"step": int(found["step"]), "group": list(map(str, found.get("group", ())))}
    except _DAMAGES:
        return {}


_FILES = {result.FINISHED, result.FAILED, request.FILE}
_TAIL = 20_000  # bytes of a journal that are read for the last step
_NO_SCORE = ("event", "step", "epoch", "part", "loss")


@dataclass(frozen=True)
class Known:
    """A run folder with its state, its last step and its best dev score so far."""

    folder: Path
    state: RunState
    step: int = 0
    dev: str = ""

    def plain(self) -> dict[str, Any]:
        """Return the fields as plain data."""
        own = {"folder": str(self.folder), "state": self.state.kind, "detail": self.state.detail}
        return {**own, "step": self.step, "dev": self.dev}


def runs(root: Path) -> list[Known]:
    """Return the runs below a folder, without those that `rerun=true` set aside."""
    return [_known(folder) for folder in sorted(_folders(root))]


def _folders(root: Path) -> Iterator[Path]:
    """Yield run folders, and those that a process is about to create."""
    for place, folders, files in os.walk(root):
        if not _FILES.isdisjoint(files):
            if "~" not in os.path.basename(place):
                yield Path(place)
            folders.clear()
            continue
        owners = [f for f in files if f.startswith(".") and f.endswith(".owner")]
        early = [name[1:].removesuffix(".owner") for name in owners]
        yield from (Path(place, name) for name in early if name not in folders)


def _known(folder: Path) -> Known:
    state = state_of(folder)
    step, dev = progress(folder) if state.kind in ("running", "interrupted") else (0, "")
    return Known(folder, state, step, dev)


def progress(folder: Path) -> tuple[int, str]:
    """Return the last step of a run folder and its best dev score so far, as text."""
    file = folder / "metrics.jsonl"
    try:
        with opened(file) as source:
            source.seek(max(0, os.fstat(source.fileno()).st_size - _TAIL))
            lines = source.read(_TAIL).decode("utf-8", "replace").split("\n")
    except OSError:
        return 0, ""
    step, scores = 0, []
    for line in lines:
        try:
            row = digest.row(line)
        except ValueError:  # cut at either end, or damaged: resuming names it
            continue
        step = max(step, row.get("step", 0))
        if row.get("event") == "dev":
            values = (value for key, value in row.items() if key not in _NO_SCORE)
            scores += [value for value in values if is_number(value)][:1]
    return step, f"{max(scores):.1f}" if scores else ""
