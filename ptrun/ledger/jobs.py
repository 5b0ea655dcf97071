"""The runs of a table: each cell that can be run, with every searched value and every seed."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from ptrun.config.suggest import unknown
from ptrun.errors import UserError
from ptrun.ledger.experiment import Cell, Experiment
from ptrun.ledger.scale import scaled

OWN = ("experiment", "scale", "cell", "check", "seeds")
"""Keys of the command itself; all else is an override of every run."""


@dataclass(frozen=True)
class Asked:
    """What was typed: an experiment, a scale, cells by a pattern, and overrides for all runs."""

    experiment: str
    scale: str | None
    cell: str | None
    check: bool
    seeds: int | None
    overrides: Sequence[str]


@dataclass(frozen=True)
class Job:
    """One run: its cell's key, and all that is typed for it."""

    key: str
    overrides: Sequence[str]


def asked(arguments: Sequence[str]) -> Asked:
    """Return what a command line asks for.

    Raises:
        UserError: a value of the command's own keys is none, or a key is not for an experiment.
    """
    if words := [a for a in arguments if "=" not in a and not a.startswith("~")]:
        raise UserError(f"experiment=... takes KEY=VALUE alone; leave out {' '.join(words)}.")
    own = {k.lstrip("+"): v for k, _, v in (a.partition("=") for a in arguments)}
    if "name" in own:
        raise UserError("experiment=...: runs are named by their cells; leave name= out.")
    given = {key: own[key] for key in OWN if key in own}
    rest = [a for a in arguments if a.lstrip("+").partition("=")[0] not in OWN]
    check, seeds = given.get("check", "false"), given.get("seeds")
    if check not in ("true", "false"):
        raise UserError(f"check={check}: use true or false.")
    if seeds is not None and not (seeds.isdecimal() and int(seeds)):
        raise UserError(f"seeds={seeds}: how many of the experiment's seeds, as in seeds=1.")
    count = None if seeds is None else int(seeds)
    scale, cell = given.get("scale"), given.get("cell")
    return Asked(given["experiment"], scale, cell, check == "true", count, rest)


def jobs(experiment: Experiment, wanted: Asked) -> list[Job]:
    """Return the runs, cell by cell; cells that repeat another table's are left to that.

    At a scale, where many cells become alike, those are run once.

    Raises:
        UserError: no cell is meant, or more seeds than there are.
    """
    if (wanted.seeds or 0) > len(experiment.seeds):
        raise UserError(
            f"seeds={wanted.seeds}: {experiment.name} has {len(experiment.seeds)}; type other "
            "seeds one by one, as in seed=1,2,3."
        )
    cells = {c.key: c for c in experiment.cells if _own(experiment, c)}
    chosen = {k: c for k, c in cells.items() if wanted.cell is None or _meant(wanted.cell, k)}
    if not chosen:
        told = (
            "none of its cells can be run"
            if wanted.cell is None
            else unknown(f"cell={wanted.cell}", wanted.cell, cells)
        )
        raise UserError(f"experiment={experiment.name}: {told}")
    found = [job for cell in chosen.values() for job in _of(experiment, cell, wanted)]
    return found if wanted.scale is None else _unlike(found)


def _unlike(found: Sequence[Job]) -> list[Job]:
    """Return jobs without those that differ from an earlier one in their name alone."""
    unlike: dict[str, Job] = {}
    for job in found:
        unlike.setdefault(str(sorted(o for o in job.overrides if not o.startswith("name="))), job)
    return list(unlike.values())


def _own(experiment: Experiment, cell: Cell) -> bool:
    return experiment.reason(cell) is None and experiment.home(cell)[0] == experiment.name


def _meant(pattern: str, key: str) -> bool:
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), key) is not None


def _of(experiment: Experiment, cell: Cell, wanted: Asked) -> Iterator[Job]:
    pocket = f"{wanted.scale}/" if wanted.scale else ""
    named = f"name={pocket}{experiment.name}/{cell.key}"
    typed = scaled(experiment.overrides(cell), wanted.scale)
    last = [o for o in wanted.overrides if not o.startswith("seed=")]
    for chosen in _searched(experiment, cell, wanted):
        for seed in _seeds(experiment, wanted):
            yield Job(cell.key, [*typed, *chosen, f"seed={seed}", *last, named])


def _searched(experiment: Experiment, cell: Cell, wanted: Asked) -> list[list[str]]:
    """Return every combination of searched values, of none at a scale.

    A key that the user types is not searched.
    """
    if wanted.scale:
        return [[]]
    typed = {o.lstrip("+").partition("=")[0] for o in wanted.overrides}
    found: dict[str, Sequence[Any]] = {}
    for rule in experiment.grid:
        if rule.holds(cell.at):
            over: Mapping[str, Sequence[Any]] = rule.what
            found |= {key: values for key, values in over.items() if key not in typed}
    lines = [[f"{key}={value}" for value in values] for key, values in found.items()]
    return [list(one) for one in product(*lines)]


def _seeds(experiment: Experiment, wanted: Asked) -> Sequence[int | str]:
    """Return the seeds: those typed (`seed=1,2`), the first few, or at a scale one."""
    typed = [o.partition("=")[2] for o in wanted.overrides if o.startswith("seed=")]
    if typed:
        return typed[-1].split(",")
    return experiment.seeds[: wanted.seeds or (1 if wanted.scale else None)]
