"""Result files to one table: mean, standard deviation and number of seeds for each cell."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from ptrun import result
from ptrun.errors import UserError
from ptrun.types import RunResult

_NAMES = ("task", "method", "backbone", "setting", "protocol")


@dataclass(frozen=True)
class Cell:
    """The runs that differ in their seed alone."""

    names: tuple[str, ...]
    differs: str
    """The settings that tell this cell from others of the same names."""
    runs: Sequence[RunResult]

    def values(self, part: str) -> list[float]:
        """Return the selecting metric of each finished run on `dev` or `test`."""
        done = [run for run in self.runs if run.status == "finished"]
        return [run.metrics[part][run.metric] for run in done if run.metrics[part]]


def cells(results: Sequence[RunResult]) -> list[Cell]:
    """Group results by everything but their seed."""
    groups: dict[str, list[RunResult]] = {}
    for run in results:
        groups.setdefault(run.group, []).append(run)
    names = {group: tuple(runs[0].names[n] for n in _NAMES) for group, runs in groups.items()}
    found = []
    for group, runs in groups.items():
        rivals = [groups[other][0] for other in groups if names[other] == names[group]]
        found.append(Cell(names[group], _differences(runs[0], rivals), runs))
    return sorted(found, key=lambda cell: (cell.names, cell.differs))


def table(root: Path) -> Table:
    """Return the table of all runs below a folder.

    Raises:
        UserError: the folder is not there, or holds no result.
    """
    if not root.is_dir():
        raise UserError(f"report {root}: no such folder; results are below `outputs`.")
    results = result.read_all(root)
    if not results:
        raise UserError(f"report {root}: no result.json or failure.json below it.")
    shown = Table(title=str(root), title_justify="left")
    for name in (*_NAMES, "differs in", "metric"):
        shown.add_column(name, overflow="fold")
    for name in ("dev", "test", "n", "failed", "learned"):
        shown.add_column(name, justify="right", no_wrap=True)
    for cell in cells(results):
        shown.add_row(*_row(cell))
    shown.caption = "mean ± standard deviation over seeds (n - 1); failed runs are not in the mean"
    shown.caption_justify = "left"
    return shown


def spread(values: Sequence[float]) -> str:
    """Return `mean ± std` (sample standard deviation, ddof 1), the mean alone for one value."""
    if not values:
        return "-"
    mean = f"{statistics.mean(values):.2f}"
    return f"{mean} ± {statistics.stdev(values):.2f}" if len(values) > 1 else mean


def _row(cell: Cell) -> list[str]:
    first = cell.runs[0]
    failed = sum(run.status != "finished" for run in cell.runs)
    return [
        *cell.names,
        cell.differs,
        first.metric,
        spread(cell.values("dev")),
        spread(cell.values("test")),
        str(len(cell.values("test"))),
        str(failed) if failed else "",
        f"{first.learned_parameters['total']:,}",
    ]


def _differences(run: RunResult, rivals: Sequence[RunResult]) -> str:
    """Return `key=value` for each setting in which the rivals are not all alike."""
    flats = [_flat(rival.config) for rival in rivals]
    own = _flat(run.config)
    keys = [key for key in own if key != "seed" and len({str(f.get(key)) for f in flats}) > 1]
    return " ".join(f"{key}={own[key]}" for key in keys)


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat
