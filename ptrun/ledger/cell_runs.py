"""The runs of a cell's folder, divided by whether the cell requests them."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ptrun.errors import UserError
from ptrun.folder import result
from ptrun.ledger.experiment import Cell, Experiment, load
from ptrun.ledger.requested import Requests, differences
from ptrun.types import RunResult

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class CellRuns:
    """The runs that a cell requests, and the other runs of its folder by what differs."""

    runs: Sequence[RunResult]
    variants: Mapping[str, Sequence[RunResult]]


def cell_runs(experiment: Experiment, cell: Cell, outputs: Path, requests: Requests) -> CellRuns:
    """Return the runs of a cell, from the folder of the experiment that runs it."""
    home = outputs.joinpath(*experiment.home(cell))
    folders = result.run_folders(home) if home.is_dir() else []
    if not folders:
        return CellRuns([], {})
    experiment, cell = _home(experiment, cell)
    wanted, grid = requests.of(experiment, cell), experiment.searched(cell)
    runs: list[RunResult] = []
    variants: dict[str, list[RunResult]] = {}
    for folder in folders:
        try:
            run = result.read(folder)
        except UserError as error:
            _LOG.warning("not counted: %s", error)
            continue
        if run is None:
            continue
        differs = differences(wanted, run, folder, grid)
        own = variants.setdefault(", ".join(differs), []) if differs else runs
        own.append(run)
    return CellRuns(runs, variants)


def _home(experiment: Experiment, cell: Cell) -> tuple[Experiment, Cell]:
    """Return the experiment that runs a cell, and the cell there."""
    name, key = experiment.home(cell)
    if key == cell.key and name == experiment.name:
        return experiment, cell
    there = experiment if name == experiment.name else load(name)
    return there, next(other for other in there.cells if other.key == key)
