"""A paper's table or figure as data: its printed numbers and the overrides that reproduce them.

The data is `conf/experiment/<paper>/<table>.yaml`. `ptrun experiment=dpt/table1` runs its cells.
This module does not import torch.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from yaml import YAMLError

from ptrun.config import plain_yaml
from ptrun.config.paths import conf_dir
from ptrun.config.suggest import unknown
from ptrun.errors import UserError

GRID = "grid"
"""The value of `mean_over` for the mean over all configurations of a cell's grid."""
AXES = ("backbone", "method", "setting", "task")
_NEEDED = {"paper", "table", "title", "source", "protocol", "precision", "seeds", *AXES, "cells"}
_KEYS = {*_NEEDED, "statistic", "ddof", "hours", "shared", "extra", "grid", "metrics", "not_run"}
_KEYS |= {"derived", "of", "notes", "curve"}

_RULES = {
    "extra": "add",
    "grid": "over",
    "not_run": "why",
    "derived": "mean_over",
    "of": "table",
    "notes": "says",
}


@dataclass(frozen=True)
class Cell:
    """One printed number.

    Args:
        at: its place on each axis, in the paper's words.
        metric: the metric as printed.
        value: the number. None for a point that a figure draws without its number; several numbers
            for a cell that lists searched values.
        std: the printed deviation.
        released: the number from the authors' rerun of the released code.
    """

    at: Mapping[str, str]
    metric: str
    value: float | Sequence[float] | None
    std: float | None = None
    released: float | None = None

    @property
    def number(self) -> float | None:
        """The value if it is a single number."""
        return float(self.value) if isinstance(self.value, int | float) else None

    @property
    def key(self) -> str:
        """The folder name of its runs; cells that differ only in their metric share it."""
        text = ".".join(self.at[axis] for axis in AXES)
        return "".join(c if c.isalnum() or c in ".-" else "_" for c in text)


@dataclass(frozen=True)
class Rule:
    """A rule for the cells that have one of the named values on each named axis.

    Args:
        when: values by axis; an axis without values matches any.
        what: overrides to add, values to search, another table, or a reason or note as text.
        called: a cell's names in that other table, by axis, where they differ.
    """

    when: Mapping[str, Sequence[str]]
    what: Any
    called: Mapping[str, str] = field(default_factory=dict)

    def holds(self, at: Mapping[str, str]) -> bool:
        """Return whether the rule applies to a place."""
        return all(at[axis] in values for axis, values in self.when.items())


@dataclass(frozen=True)
class Experiment:
    """A table or figure.

    Args:
        paper, table: its name, as in `dpt/table1`.
        title: the subject of the table.
        source: where it is printed, and how certain that is.
        protocol: how the authors trained, selected and reported, as text.
        precision: in which the authors computed; `extra` has exceptions.
        seeds: the model seeds of each cell.
        statistic: the printed statistic of the seeds: `mean`, `best_3`, `max`, `min` or `single`.
        hours: the estimated GPU hours and how they were estimated, as text.
        shared: overrides of all cells.
        axes: the overrides of each value, by axis.
        extra: further overrides, in order.
        grid: values to search on dev, a list by key.
        metrics: the key in a result's metrics by printed name; `dev.KEY` reads the dev split.
        not_run: why some cells have no run of their own.
        derived: the axis over which a cell is the mean of others; or `grid`: it is the mean over
            its searched values, none of which is selected.
        of: another table that has the runs of these cells; `called` names them there.
        notes: remarks on printed numbers, shown below the table.
        curve: the x axis of a figure.
        ddof: the paper's deviations divide by n - ddof, and ours beside them too.
    """

    paper: str
    table: str
    title: str
    source: str
    protocol: str
    precision: str
    seeds: Sequence[int]
    cells: Sequence[Cell]
    axes: Mapping[str, Mapping[str, Sequence[str]]]
    statistic: str = "mean"
    hours: str = ""
    shared: Sequence[str] = ()
    extra: Sequence[Rule] = ()
    grid: Sequence[Rule] = ()
    metrics: Mapping[str, str] = field(default_factory=dict)
    not_run: Sequence[Rule] = ()
    derived: Sequence[Rule] = ()
    of: Sequence[Rule] = ()
    notes: Sequence[Rule] = ()
    curve: str | None = None
    ddof: Literal[0, 1] = 1

    @property
    def name(self) -> str:
        """The name after `experiment=`."""
        return f"{self.paper}/{self.table}"

    def overrides(self, cell: Cell) -> list[str]:
        """Return a cell's overrides without its seed and searched values."""
        by_axis = [o for axis in AXES for o in self.axes[axis].get(cell.at[axis], ())]
        extra = [o for rule in self.extra if rule.holds(cell.at) for o in rule.what]
        return [f"hardware.precision={self.precision}", *self.shared, *by_axis, *extra]

    def searched(self, cell: Cell) -> dict[str, list[Any]]:
        """Return the values of a cell that dev selects from, by key."""
        found: dict[str, list[Any]] = {}
        for rule in self.grid:
            found |= rule.what if rule.holds(cell.at) else {}
        return found

    def configurations(self, cell: Cell) -> int:
        """Return the number of combinations of a cell's searched values."""
        return math.prod(map(len, self.searched(cell).values()))

    def precision_of(self, cell: Cell) -> str:
        """Return the precision in which the authors computed a cell."""
        key = "hardware.precision="
        return [o for o in self.overrides(cell) if o.startswith(key)][-1].removeprefix(key)

    def reason(self, cell: Cell) -> str | None:
        """Return why a cell has no run of its own, or None."""
        axis = self.mean_over(cell)
        mean = f"the mean over {axis}, computed once all of its cells are run"
        return _first(self.not_run, cell) or (None if axis in (None, GRID) else mean)

    def note(self, cell: Cell) -> str | None:
        """Return the remark on a cell's printed number, or None."""
        return _first(self.notes, cell)

    def mean_over(self, cell: Cell) -> str | None:
        """Return the axis over which a cell is the mean of others, `grid`, or None."""
        return _first(self.derived, cell)

    def sample_std(self, cell: Cell) -> float | None:
        """Return a cell's printed deviation as one that divides by n - 1, or None."""
        count = len(self.seeds)
        if cell.std is None or self.ddof == 1 or count == 1:
            return cell.std
        return cell.std * math.sqrt(count / (count - 1))

    def home(self, cell: Cell) -> tuple[str, str]:
        """Return the experiment that runs a cell, this or another, and the cell's key there."""
        for rule in self.of:
            if rule.holds(cell.at):
                return str(rule.what), replace(cell, at={**cell.at, **rule.called}).key
        return self.name, cell.key


def names() -> list[str]:
    """Return the names of all experiments, sorted."""
    folder = conf_dir() / "experiment"
    return sorted(f"{f.parent.name}/{f.stem}" for f in folder.glob("*/*.yaml"))


def load(name: str) -> Experiment:
    """Return an experiment by name.

    Raises:
        UserError: the name is unknown, or its file is invalid.
    """
    if name not in names():
        raise UserError(unknown(f"experiment={name}", name, names()))
    return read(conf_dir() / "experiment" / f"{name}.yaml")


def read(file: Path) -> Experiment:
    """Return the experiment of a file.

    Raises:
        UserError: a key is unknown or missing, or a cell or rule has a place that is on no axis.
    """
    try:
        content: dict[str, Any] = plain_yaml.read(file)
    except (YAMLError, ValueError) as error:
        raise UserError(f"{file}: {str(error).splitlines()[0]}") from error
    for key in content.keys() - _KEYS:
        raise UserError(unknown(f"{file.name}: {key}", key, _KEYS))
    if missing := sorted(_NEEDED - content.keys()):
        raise UserError(f"{file}: {', '.join(missing)} is missing.")
    if content.get("ddof", 1) not in (0, 1):
        raise UserError(f"{file.name}: ddof is {content['ddof']!r}; use 0 or 1.")
    axes = {axis: {str(k): _list(v) for k, v in content.pop(axis).items()} for axis in AXES}
    cells = [_cell(row) for row in content.pop("cells")]
    for key, what in _RULES.items():
        content[key] = [_rule(row, what) for row in content.get(key, [])]
    content["shared"] = _list(content.get("shared", []))
    whens = [rule.when for key in _RULES for rule in content[key]]
    named = [(axis, place) for when in whens for axis, places in when.items() for place in places]
    _check_places(file, [*(pair for cell in cells for pair in cell.at.items()), *named], axes)
    return Experiment(cells=cells, axes=axes, **content)


def _first(rules: Sequence[Rule], cell: Cell) -> str | None:
    """Return the text of the first rule that applies."""
    return next((str(rule.what) for rule in rules if rule.holds(cell.at)), None)


def _cell(row: Sequence[Any]) -> Cell:
    """Return a cell of `[backbone, method, setting, task, metric, value, std, released]`."""
    places, (metric, value, *rest) = row[: len(AXES)], row[len(AXES) :]
    at = dict(zip(AXES, map(str, places), strict=True))
    return Cell(at, str(metric), value, *rest)


def _rule(row: Mapping[str, Any], what: str) -> Rule:
    when = {axis: _places(values) for axis, values in row.get("when", {}).items()}
    called = {axis: str(value) for axis, value in row.get("called", {}).items()}
    return Rule(when, _list(row[what]) if what == "add" else row[what], called)


def _places(value: Any) -> list[str]:
    """Return places of an axis; a single one may stand without brackets and contain spaces."""
    return [str(v) for v in (value if isinstance(value, list) else [value])]


def _list(value: Any) -> list[Any]:
    """Return a list; a text is split into overrides."""
    return value.split() if isinstance(value, str) else list(value or [])


def _check_places(
    file: Path, places: Sequence[tuple[str, str]], axes: Mapping[str, Mapping[str, Any]]
) -> None:
    for axis, place in places:
        if axis not in axes:
            raise UserError(f"{file.name}: " + unknown("when", axis, AXES))
        if place not in axes[axis]:
            raise UserError(f"{file.name}: " + unknown(axis, place, axes[axis]))
