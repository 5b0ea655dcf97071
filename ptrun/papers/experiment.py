"""A paper's table or figure as data: its printed numbers and the overrides that reproduce them.

The data is `conf/experiment/<paper>/<table>.yaml`. `ptrun experiment=dpt/table1` runs its cells.
This module does not import torch.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache, cached_property
from itertools import product
from pathlib import Path
from typing import Any, Literal

from ptrun.config import plain_yaml
from ptrun.config.paths import conf_dir
from ptrun.errors import UserError, unknown

GRID = "grid"
"""The value of `mean_over` for the mean over all configurations of a cell's grid."""
AXES = ("backbone", "method", "setting", "task")
_SIGMAS = 1.96  # 95 %
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
        costs: what it took, as printed, by the names of the table's `costs`.
    """

    at: Mapping[str, str]
    metric: str
    value: float | Sequence[float] | None
    std: float | None = None
    released: float | None = None
    costs: Mapping[str, float] = field(default_factory=dict)

    @property
    def place(self) -> dict[str, str]:
        """Its place on each axis, and its metric."""
        return {**self.at, "metric": self.metric}

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
class Pocket:
    """How `+scale=pocket` fills rows of a table; a table without it has a smoke test.

    Args:
        minutes: how long that took on two cores, as text.
        seeds: the seeds of each cell.
        add: overrides of all cells, after those that suit the pocket world.
        metrics: as those of a table, where its tasks have others there.
        when: values by axis of its cells; an axis without values has all.
        extra: further overrides, in order.
    """

    minutes: str
    seeds: Sequence[int]
    add: Sequence[str] = ()
    metrics: Mapping[str, str] | None = None
    when: Mapping[str, Sequence[str]] = field(default_factory=dict)
    extra: Sequence[Rule] = ()


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
        costs: names of printed costs, which stand behind the value of each cell.
        questions: the number of test examples that each printed accuracy is of.
        honest: the `seeds` of `protocol=honest`, and overrides to `add`, where they differ.
        pocket: how rows are filled at pocket scale.
        scale: `pocket` for a table of pocket runs (`at`), else None.
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
    costs: Sequence[str] = ()
    questions: int | None = None
    honest: Mapping[str, Any] | None = None
    pocket: Pocket | None = None
    scale: str | None = None

    @property
    def name(self) -> str:
        """The name after `experiment=`."""
        return f"{self.paper}/{self.table}"

    @property
    def folder(self) -> list[str]:
        """The folder of its runs, below that of all runs."""
        return [*filter(None, [self.scale]), self.paper, self.table]

    def overrides(self, cell: Cell) -> list[str]:
        """Return a cell's overrides without its seed and searched values."""
        by_axis = [o for axis in AXES for o in self.axes[axis].get(cell.at[axis], ())]
        extra = [o for rule in self.extra if rule.holds(cell.at) for o in rule.what]
        paper = [f"hardware.precision={self.precision}", *self.shared, *by_axis, *extra]
        return scaled(paper, self.scale, self.pocket, cell.at)

    def searched(self, cell: Cell) -> dict[str, list[Any]]:
        """Return the values of a cell that dev selects from, by key."""
        values: dict[str, list[Any]] = {}
        for rule in self.grid:
            values |= rule.what if rule.holds(cell.at) else {}
        return values

    def configurations(self, cell: Cell) -> int:
        """Return the number of combinations of a cell's searched values."""
        return math.prod(map(len, self.searched(cell).values()))

    def precision_of(self, cell: Cell) -> str:
        """Return the precision in which the authors computed a cell."""
        key = "hardware.precision="
        precisions = [o.removeprefix(key) for o in self.overrides(cell) if o.startswith(key)]
        return precisions[-1] if precisions else "fp32"

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
        if cell.std is None or self.ddof == 1 or count <= 1:
            return cell.std
        return cell.std * math.sqrt(count / (count - 1))

    def at(self, scale: str | None) -> "Experiment":
        """Return the table at a known scale: with its seeds and one configuration a cell."""
        if scale is None:
            return self
        if scale != POCKET:
            raise UserError(
                f"scale={scale}: unknown. Allowed: {POCKET}; without scale= the paper's runs "
                "are used."
            )
        seeds = self.pocket.seeds if self.pocket else self.seeds[:1]
        changes: dict[str, Any] = {"seeds": seeds, "grid": (), "scale": scale}
        if self.pocket:
            changes |= {"of": (), "title": f"{self.title}, at pocket scale", "notes": ()}
            changes |= {"protocol": _POCKET_PROTOCOL, "hours": self.pocket.minutes}
            rule = Rule(self.pocket.when, None)
            changes |= {"metrics": self.pocket.metrics or self.metrics, "questions": None}
            changes["cells"] = [cell for cell in self.cells if rule.holds(cell.at)]
        return replace(self, statistic="mean" if len(seeds) > 1 else "single", **changes)

    def under(self, protocol: str | None) -> "Experiment":
        """Return the table with the overrides and seeds of a protocol."""
        if protocol != "honest" or self.honest is None or self.scale:
            return self
        extra = [*self.extra, Rule({}, _list(self.honest["add"]))]
        return replace(self, extra=extra, seeds=self.honest["seeds"])

    @cached_property
    def ranks(self) -> Mapping[str, tuple[int, int]]:
        """The first and last rank that each printed accuracy may have, by the key of its cell.

        Two accuracies are in order if they differ by more than 1.96 standard errors of their
        difference, each the share of right answers in `questions` independent ones.
        """
        count = self.questions or 0
        shares = {c.key: c.number / 100 for c in self.cells if count and c.number is not None}

        def above(a: float, b: float) -> bool:
            return a - b > _SIGMAS * math.sqrt((a * (1 - a) + b * (1 - b)) / count)

        ranks = {}
        for key, share in shares.items():
            better = sum(above(other, share) for other in shares.values())
            worse = sum(above(share, other) for other in shares.values())
            ranks[key] = (1 + better, len(shares) - worse)
        return ranks

    @cached_property
    def _first_with(self) -> dict[tuple[str, ...], str]:
        """The key of the first cell with some overrides: at a scale, several cells become equal."""
        keys: dict[tuple[str, ...], str] = {}
        for cell in self.cells:
            if self.reason(cell) is None and not any(rule.holds(cell.at) for rule in self.of):
                keys.setdefault(tuple(sorted(self.overrides(cell))), cell.key)
        return keys

    def home(self, cell: Cell) -> tuple[str, str]:
        """Return the experiment that runs a cell, this or another, and the cell's key there."""
        for rule in self.of:
            if rule.holds(cell.at):
                return str(rule.what), replace(cell, at={**cell.at, **rule.called}).key
        if self.scale and self.reason(cell) is None:
            return self.name, self._first_with[tuple(sorted(self.overrides(cell)))]
        return self.name, cell.key


def names() -> list[str]:
    """Return the names of all experiments, sorted."""
    folder = conf_dir() / "experiment"
    return sorted(f"{f.parent.name}/{f.stem}" for f in folder.glob("*/*.yaml"))


@cache
def load(name: str) -> Experiment:
    """Return an experiment by name; refuse an unknown one."""
    if name not in names():
        raise UserError(unknown(f"experiment={name}", name, names()))
    return read(conf_dir() / "experiment" / f"{name}.yaml")


def read(file: Path) -> Experiment:
    """Return the experiment of a file."""
    content: dict[str, Any] = plain_yaml.read(file)
    axes = {axis: {str(k): _list(v) for k, v in content.pop(axis).items()} for axis in AXES}
    cells = []
    costs = content.get("costs", [])
    for row in content.pop("cells"):  # [backbone, method, setting, task, metric, value, std, …]
        places, (metric, *values) = map(str, row[: len(AXES)]), row[len(AXES) :]
        value, std, released, *taken = values + [None] * (3 - len(values))
        at, named = dict(zip(AXES, places, strict=True)), dict(zip(costs, taken, strict=True))
        cells.append(Cell(at, str(metric), value, std, released, named))
    for key, what in _RULES.items():
        content[key] = [_rule(row, what) for row in content.get(key, [])]
    content["shared"] = _list(content.get("shared"))
    if pocket := content.get("pocket"):
        lists = {"add": _list(pocket.get("add")), "when": _when(pocket)}
        lists["extra"] = [_rule(row, "add") for row in pocket.get("extra", [])]
        content["pocket"] = Pocket(**(pocket | lists))
    return Experiment(cells=cells, axes=axes, **content)


def _first(rules: Sequence[Rule], cell: Cell) -> str | None:
    """Return the text of the first rule that applies."""
    return next((str(rule.what) for rule in rules if rule.holds(cell.at)), None)


def _rule(row: Mapping[str, Any], what: str) -> Rule:
    called = {axis: str(value) for axis, value in row.get("called", {}).items()}
    return Rule(_when(row), _list(row[what]) if what == "add" else row[what], called)


def _when(row: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return places by axis; a single one may stand without brackets and contain spaces."""
    return {
        axis: [str(v) for v in (value if isinstance(value, list) else [value])]
        for axis, value in row.get("when", {}).items()
    }


def _list(value: Any) -> list[Any]:
    """Return a list; a text is split into overrides."""
    return value.split() if isinstance(value, str) else list(value or [])


# The runs of a table: each cell that can be run, with every searched value and every seed.

OWN = ("experiment", "scale", "cell", "check", "seeds")
"""Keys of the command itself; all others are overrides of every run."""


@dataclass(frozen=True)
class Options:
    """The command line: an experiment, a scale, a pattern of cells, and overrides of all runs."""

    experiment: str
    scale: str | None
    cell: str | None
    check: bool
    seeds: int | None
    overrides: Sequence[str]


@dataclass(frozen=True)
class TableJob:
    """One run: its cell's key, its overrides, and the title in the sweep."""

    key: str
    overrides: Sequence[str]
    title: str = ""


def parse(arguments: Sequence[str]) -> Options:
    """Return the options of a command line; refuse what does not suit an experiment."""
    if words := [a for a in arguments if "=" not in a and not a.startswith("~")]:
        raise UserError(f"experiment=... takes only KEY=VALUE; leave out {' '.join(words)}.")
    values = {k.lstrip("+"): v for k, _, v in (a.partition("=") for a in arguments)}
    if "name" in values:
        raise UserError("experiment=...: each run is named after its cell; leave out name=.")
    check, seeds = values.get("check", "false"), values.get("seeds")
    if check not in ("true", "false"):
        raise UserError(f"check={check}: use true or false.")
    if seeds is not None and not (seeds.isdecimal() and int(seeds)):
        raise UserError(f"seeds={seeds}: use the number of seeds to run, as in seeds=1.")
    return Options(
        values["experiment"],
        values.get("scale"),
        values.get("cell"),
        check == "true",
        None if seeds is None else int(seeds),
        [a for a in arguments if a.lstrip("+").partition("=")[0] not in OWN],
    )


def jobs(experiment: Experiment, options: Options) -> list[TableJob]:
    """Return the runs, cell by cell, without the cells that another table runs.

    Many cells become equal at a scale; the first of them is run. A key on the command line is not
    searched, and `seed=1,2` replaces the seeds. No cell, or fewer seeds than asked, is refused.
    """
    typed = dict(o.lstrip("+").partition("=")[::2] for o in options.overrides)
    experiment = experiment.under(None if options.scale else typed.get("protocol"))
    if (options.seeds or 0) > len(experiment.seeds):
        raise UserError(
            f"seeds={options.seeds}: {experiment.name} has {len(experiment.seeds)}; list other "
            "seeds by number, as in seed=1,2,3."
        )
    experiment = experiment.at(options.scale)
    cells = own_cells(experiment)
    pattern = "*" if options.cell is None else options.cell
    chosen = {key: cell for key, cell in cells.items() if fnmatchcase(key, pattern)}
    if not chosen:
        problem = unknown(f"cell={pattern}", pattern, cells) if cells else "no cell can be run"
        raise UserError(f"experiment={experiment.name}: {problem}")

    last = [o for o in options.overrides if not o.startswith("seed=")]
    seeds = typed["seed"].split(",") if "seed" in typed else experiment.seeds[: options.seeds]
    todo = []
    for key, cell in chosen.items():
        grid = experiment.searched(cell).items()
        lines = [[f"{k}={value}" for value in values] for k, values in grid if k not in typed]
        name = f"name={'/'.join([*experiment.folder, key])}"
        for searched, seed in product(product(*lines), seeds):
            point = [*searched, f"seed={seed}"]
            overrides = [*experiment.overrides(cell), *point, *last, name]
            todo.append(TableJob(key, overrides, " ".join([key, *point])))
    return todo


def own_cells(experiment: Experiment) -> dict[str, Cell]:
    """Return the cells that run under this table's name, by key."""
    return {
        cell.key: cell
        for cell in experiment.cells
        if experiment.reason(cell) is None and experiment.home(cell) == (experiment.name, cell.key)
    }


# A paper's cell at pocket scale: on the pocket world, with small models.

POCKET = "pocket"
_POCKET_PROTOCOL = (
    "Pocket scale: a generated world and models of 1 to 2 million parameters stand for the "
    "paper's. Backbones of one family share a run, and tasks of one form do. Dev selects and test "
    "is scored once. Only the order of the methods may be compared with the paper."
)


def scaled(
    overrides: Sequence[str], scale: str | None, table: Pocket | None, at: Mapping[str, str]
) -> list[str]:
    """Return the overrides of the cell `at` some places for a scale; None keeps them."""
    if scale is None:
        return list(overrides)
    rules = _pocket_rules()
    replaced = [option for override in overrides for option in _scaled(override, rules)]
    several = f"task={POCKET}_multi" in replaced  # its tasks have sources, itself it has none
    rows = [] if several else [rules["rows_of_table" if table else "rows"]]
    if table is None:
        return [*replaced, *rules["smoke"], *rows]
    suited = [o for o in replaced if not o.startswith(tuple(rules["drop_of_table"]))]
    extra = [o for rule in table.extra if rule.holds(at) for o in rule.what]
    return [*suited, *rules["add"], *rows, *table.add, *extra]


@cache
def _pocket_rules() -> Any:
    return plain_yaml.read(conf_dir() / "experiment" / "pocket.yaml")


def _scaled(override: str, rules: Mapping[str, Any]) -> list[str]:
    """Return the replacement of an override; empty if it only suits the paper's data."""
    key, _, value = override.partition("=")
    for named in (override, key):
        if named in rules["instead"]:
            return str(rules["instead"][named]).split()
    if override.lstrip("+~").startswith(tuple(rules["drop"])):
        return []
    if key not in ("backbone", "task", "setting"):
        return [override]
    options = rules[key]
    if key != "setting" and value not in options and not value.startswith("pocket_"):
        raise UserError(f"{override}: scale=pocket has no replacement for it (pocket.yaml).")
    return [f"{key}={options.get(value, value)}"]
