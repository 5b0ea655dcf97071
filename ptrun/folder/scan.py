"""The runs below a folder, how far each is, and its last step."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ptrun.files import opened
from ptrun.folder import digest, request, result
from ptrun.folder.digest import is_number
from ptrun.folder.state import RunState, state_of

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
