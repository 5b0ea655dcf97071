"""The runs of a table: each cell that can be run, with every searched value and every seed."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from ptrun.config.suggest import unknown
from ptrun.errors import UserError
from ptrun.ledger.experiment import Cell, Experiment
from ptrun.ledger.scale import scaled

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
class Job:
    """One run: its cell's key, its overrides, and the title in the sweep."""

    key: str
    overrides: Sequence[str]
    title: str = ""


def parse(arguments: Sequence[str]) -> Options:
    """Return the options of a command line.

    Raises:
        UserError: a value is invalid, or an argument does not suit an experiment.
    """
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


def jobs(experiment: Experiment, options: Options) -> list[Job]:
    """Return the runs, cell by cell, without the cells that another table runs.

    Many cells become equal at a scale; each is then run once.

    Raises:
        UserError: no cell matches, or the experiment has fewer seeds.
    """
    if (options.seeds or 0) > len(experiment.seeds):
        raise UserError(
            f"seeds={options.seeds}: {experiment.name} has {len(experiment.seeds)}; list other "
            "seeds by number, as in seed=1,2,3."
        )
    cells = own_cells(experiment)
    chosen = {k: c for k, c in cells.items() if options.cell is None or _matches(options.cell, k)}
    if not chosen:
        problem = (
            "none of its cells can be run"
            if options.cell is None
            else unknown(f"cell={options.cell}", options.cell, cells)
        )
        raise UserError(f"experiment={experiment.name}: {problem}")
    found = [job for cell in chosen.values() for job in _jobs_of(experiment, cell, options)]
    return found if options.scale is None else _distinct(found)


def own_cells(experiment: Experiment) -> dict[str, Cell]:
    """Return the cells that run under this table's name, by key."""
    return {c.key: c for c in experiment.cells if _runs_here(experiment, c)}


def _distinct(found: Sequence[Job]) -> list[Job]:
    """Return the jobs without those that differ from an earlier one only in their name."""
    distinct: dict[str, Job] = {}
    for job in found:
        distinct.setdefault(str(sorted(o for o in job.overrides if not o.startswith("name="))), job)
    return list(distinct.values())


def _runs_here(experiment: Experiment, cell: Cell) -> bool:
    return experiment.reason(cell) is None and experiment.home(cell) == (experiment.name, cell.key)


def _matches(pattern: str, key: str) -> bool:
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), key) is not None


def _jobs_of(experiment: Experiment, cell: Cell, options: Options) -> Iterator[Job]:
    folder = f"{options.scale}/" if options.scale else ""
    name = f"name={folder}{experiment.name}/{cell.key}"
    first = scaled(experiment.overrides(cell), options.scale)
    last = [o for o in options.overrides if not o.startswith("seed=")]
    for searched in _searched(experiment, cell, options):
        for seed in _seeds(experiment, options):
            title = " ".join([cell.key, *searched, f"seed={seed}"])
            yield Job(cell.key, [*first, *searched, f"seed={seed}", *last, name], title)


def _searched(experiment: Experiment, cell: Cell, options: Options) -> list[list[str]]:
    """Return every combination of searched values; a scale searches nothing.

    A key on the command line is not searched.
    """
    if options.scale:
        return [[]]
    typed = {o.lstrip("+").partition("=")[0] for o in options.overrides}
    grid = {key: own for key, own in experiment.searched(cell).items() if key not in typed}
    lines = [[f"{key}={value}" for value in values] for key, values in grid.items()]
    return [list(one) for one in product(*lines)]


def _seeds(experiment: Experiment, options: Options) -> Sequence[int | str]:
    """Return the seeds of the last `seed=1,2`, else the first `seeds`; a scale has one."""
    typed = [o.partition("=")[2] for o in options.overrides if o.startswith("seed=")]
    if typed:
        return typed[-1].split(",")
    return experiment.seeds[: options.seeds or (1 if options.scale else None)]
