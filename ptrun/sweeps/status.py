"""What `ptrun status` prints."""

import json
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from ptrun.config.readable import visible
from ptrun.errors import UserError
from ptrun.folder.scan import Known
from ptrun.folder.state import KINDS, RunState
from ptrun.sweeps import queue

_LISTED = 40  # unfinished runs that are listed


def with_queue(root: Path, known: Sequence[Known]) -> list[Known]:
    """Return runs with those that jobs of a cluster have still to do."""
    try:
        queued = queue.queued(root)
    except UserError as error:
        print(f"the queue is not shown: {error}", file=sys.stderr)
        return list(known)
    found = [_in_queue(own, queued.pop(own.folder.absolute(), None)) for own in known]
    new = [Known(folder, RunState("queued", f"in {task}")) for folder, task in queued.items()]
    return [*found, *new]


def _in_queue(own: Known, task: str | None) -> Known:
    waits = task is not None and own.state.kind in ("new", "interrupted", "failed")
    return replace(own, state=RunState("queued", f"in {task}")) if waits else own


def shown(root: Path, known: Sequence[Known], expected: Mapping[str, int]) -> Group:
    """Return a table of states by folder, and a line for each run that is not finished.

    `expected` is the number of runs that each folder will have, by its path below `root`; where it
    is empty, only the runs that have started are known.
    """
    by_folder: dict[str, Counter[str]] = {name: Counter() for name in expected}
    for own in known:
        name = os.path.relpath(own.folder.parent, root) if own.folder != root else "."
        by_folder.setdefault(name, Counter())[own.state.kind] += 1
    table = Table(box=None, pad_edge=False)
    for name in ("runs", *KINDS):
        table.add_column(name, justify="left" if name == "runs" else "right")
    for name, counts in by_folder.items():
        new = max(0, expected.get(name, 0) - counts.total())
        row = Counter({**counts, "new": new})
        table.add_row(escape(visible(name)), *(str(row[kind] or "") for kind in KINDS))
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
    return escape(visible("  ".join(parts)))


def as_json(known: Sequence[Known]) -> str:
    """Return the runs as a JSON list."""
    return json.dumps([own.plain() for own in known], indent=1)
