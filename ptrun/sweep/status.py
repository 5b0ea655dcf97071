"""How far runs are, read from their folders."""

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from ptrun.errors import UserError
from ptrun.run import request, result
from ptrun.run.state import KINDS, RunState, state_of
from ptrun.sweep.view import progress

_FILES = {result.FINISHED, result.FAILED, request.FILE}
_LISTED = 40  # unfinished runs that are listed


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
    """Return the runs below a folder, without those that `rerun=true` set aside.

    Raises:
        UserError: the folder does not exist.
    """
    if not root.is_dir():
        raise UserError(f"status {root}: no such folder. Give the folder of the runs (outputs=).")
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


def shown(root: Path, known: Sequence[Known], expected: Mapping[str, int]) -> Group:
    """Return a table of states by folder, and a line for each run that is not finished.

    `expected` is the number of runs that each folder will have, by its path below `root`; where it
    is empty, only the runs that have started are known.
    """
    by_folder: dict[str, Counter[str]] = {name: Counter() for name in expected}
    for own in known:
        name = str(own.folder.parent.relative_to(root)) if own.folder != root else "."
        by_folder.setdefault(name, Counter())[own.state.kind] += 1
    table = Table(box=None, pad_edge=False)
    for name in ("runs", *KINDS):
        table.add_column(name, justify="left" if name == "runs" else "right")
    for name, counts in by_folder.items():
        new = max(0, expected.get(name, 0) - counts.total())
        row = Counter({**counts, "new": new})
        table.add_row(escape(name), *(str(row[kind] or "") for kind in KINDS))
    left = [own for own in known if own.state.kind != "finished"]
    lines: list[RenderableType] = [_line(own) for own in left[:_LISTED]]
    if len(left) > _LISTED:
        lines.append(f"and {len(left) - _LISTED} more that are not finished")
    done, total = len(known) - len(left), max(len(known), sum(expected.values()))
    return Group(table, *lines, f"{done:,} of {total:,} runs are finished")


def _line(own: Known) -> str:
    parts = [own.folder.name, str(own.state).splitlines()[0]]
    parts += [f"step {own.step}"] if own.step and own.state.kind == "running" else []
    parts += [f"best dev {own.dev}"] if own.dev else []
    return escape("  ".join(parts))


def as_json(known: Sequence[Known]) -> str:
    """Return the runs as a JSON list."""
    return json.dumps([own.plain() for own in known], indent=1, ensure_ascii=False)
