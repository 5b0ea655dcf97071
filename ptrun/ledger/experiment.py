"""A table or figure of a paper as data: what it prints, and what is typed to get the same cell.

`conf/experiment/<paper>/<table>.yaml`; `ptrun experiment=dpt/table1` runs its cells. No torch here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from yaml import YAMLError

from ptrun.config.paths import conf_dir
from ptrun.config.suggest import unknown
from ptrun.errors import UserError
from ptrun.ledger.quick_yaml import said

AXES = ("backbone", "method", "setting", "task")
_KEYS = {"paper", "table", "title", "source", "protocol", "seeds", "statistic", "hours", "shared"}
_KEYS |= {*AXES, "extra", "grid", "metrics", "not_run", "derived", "of", "notes", "cells", "curve"}

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
        at: its place by axis, in the paper's words.
        metric: as printed.
        value: the number; None for a point of a figure that was only drawn, several of a cell that
            lists what was tried.
        std: the deviation that is printed beside it.
        released: what the authors' own rerun of the released code gave.
    """

    at: Mapping[str, str]
    metric: str
    value: float | Sequence[float] | None
    std: float | None = None
    released: float | None = None

    @property
    def number(self) -> float | None:
        """The value, where it is one number."""
        return float(self.value) if isinstance(self.value, int | float) else None

    @property
    def key(self) -> str:
        """A name of its runs, safe as a folder's: cells of several metrics share it."""
        text = ".".join(self.at[axis] for axis in AXES)
        return "".join(c if c.isalnum() or c in ".-" else "_" for c in text)


@dataclass(frozen=True)
class Rule:
    """What holds for cells whose axes have one of the values named; an axis not named may be any.

    Args:
        when: values by axis.
        what: overrides to add, values to search, another table, or a reason or note in words.
        called: of another table, what a cell's place is called there, by axis, where it differs.
    """

    when: Mapping[str, Sequence[str]]
    what: Any
    called: Mapping[str, str] = field(default_factory=dict)

    def holds(self, at: Mapping[str, str]) -> bool:
        """Return whether a place is meant."""
        return all(at[axis] in values for axis, values in self.when.items())


@dataclass(frozen=True)
class Experiment:
    """A table or figure.

    Args:
        paper, table: its name, as in `dpt/table1`.
        title: what it shows; `source`: where it is printed, and how sure that is.
        protocol: how the authors trained, selected and reported, in words.
        seeds: model seeds of a cell.
        statistic: what the printed number is of them: `mean`, `best_3`, `max`, `min` or
            `single`.
        hours: an estimate in GPU hours, in words, with its ground.
        shared: overrides of all cells.
        axes: by axis, the overrides of each of its values.
        extra: further overrides, in order.
        grid: values that are searched on dev, a list by key.
        metrics: the key in a result's metrics, by the printed name; of dev as `dev.KEY`.
        not_run: reasons why cells have no run of their own.
        derived: cells that are the mean of others: over which axis.
        of: another table whose runs these cells are, under the names it has for them (`called`).
        notes: what must be known of printed numbers, in words; shown below the table.
        curve: the axis whose values are the x of a figure.
    """

    paper: str
    table: str
    title: str
    source: str
    protocol: str
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

    @property
    def name(self) -> str:
        """As typed after `experiment=`."""
        return f"{self.paper}/{self.table}"

    def overrides(self, cell: Cell) -> list[str]:
        """Return what is typed for a cell, but for its seed and what is searched."""
        own = [o for axis in AXES for o in self.axes[axis].get(cell.at[axis], ())]
        more = [o for rule in self.extra if rule.holds(cell.at) for o in rule.what]
        return [*self.shared, *own, *more]

    def reason(self, cell: Cell) -> str | None:
        """Return why a cell has no run of its own, if so."""
        stated = next((str(r.what) for r in self.not_run if r.holds(cell.at)), None)
        axis = self.mean_over(cell)
        return stated or (f"the mean over {axis}, once all of it is run" if axis else None)

    def note(self, cell: Cell) -> str | None:
        """Return what must be known of a cell's number, if something must."""
        return next((str(rule.what) for rule in self.notes if rule.holds(cell.at)), None)

    def mean_over(self, cell: Cell) -> str | None:
        """Return the axis over which a cell is the mean of others, if it is."""
        return next((str(rule.what) for rule in self.derived if rule.holds(cell.at)), None)

    def home(self, cell: Cell) -> tuple[str, str]:
        """Return the experiment, this or another, where a cell is run, and its key there."""
        for rule in self.of:
            if rule.holds(cell.at):
                return str(rule.what), replace(cell, at={**cell.at, **rule.called}).key
        return self.name, cell.key


def names() -> list[str]:
    """Return all experiments, by paper and table."""
    folder = conf_dir() / "experiment"
    return sorted(f"{f.parent.name}/{f.stem}" for f in folder.glob("*/*.yaml"))


def load(name: str) -> Experiment:
    """Return an experiment by name.

    Raises:
        UserError: there is none of that name, or its file is not as it should be.
    """
    if name not in names():
        raise UserError(unknown(f"experiment={name}", name, names()))
    return read(conf_dir() / "experiment" / f"{name}.yaml")


def read(file: Path) -> Experiment:
    """Return the experiment of a file.

    Raises:
        UserError: a key is unknown, or a cell or rule has a place that no axis knows.
    """
    try:
        content: dict[str, Any] = said(file)
    except YAMLError as error:
        raise UserError(f"{file}: {str(error).splitlines()[0]}") from error
    for key in content.keys() - _KEYS:
        raise UserError(unknown(f"{file.name}: {key}", key, _KEYS))
    axes = {axis: {str(k): _list(v) for k, v in content.pop(axis).items()} for axis in AXES}
    cells = [_cell(row) for row in content.pop("cells")]
    for key, what in _RULES.items():
        content[key] = [_rule(row, what) for row in content.get(key, [])]
    content["shared"] = _list(content.get("shared", []))
    _check_places(file, [cell.at for cell in cells], axes)
    rules = [rule for key in _RULES for rule in content[key]]
    named = [{axis: place} for r in rules for axis, places in r.when.items() for place in places]
    _check_places(file, named, axes)
    return Experiment(cells=cells, axes=axes, **content)


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
    """Return places of an axis; one may be written without brackets, and has spaces of its own."""
    return [str(v) for v in (value if isinstance(value, list) else [value])]


def _list(value: Any) -> list[Any]:
    """Return a list; a text is a line of overrides, as typed."""
    return value.split() if isinstance(value, str) else list(value or [])


def _check_places(
    file: Path, named: Sequence[Mapping[str, str]], axes: Mapping[str, Mapping[str, Any]]
) -> None:
    for places in named:
        for axis, place in places.items():
            if axis not in axes:
                raise UserError(f"{file.name}: " + unknown("when", axis, AXES))
            if place not in axes[axis]:
                raise UserError(f"{file.name}: " + unknown(axis, place, axes[axis]))
