"""What `ptrun status` prints."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from ptrun.folder.scan import Known
from ptrun.folder.state import KINDS

_LISTED = 40  # unfinished runs that are listed


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
