"""The state of a run, read from its folder: the folders are all the memory that sweeps have."""

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ptrun.errors import UserError
from ptrun.files import LIMIT, opened
from ptrun.folder import lease, result
from ptrun.folder.header import unpacked

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
