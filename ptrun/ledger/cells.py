"""The cells of a table of results: runs that differ only in their seed, or in one more key."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ptrun.config.flat import flat
from ptrun.config.suggest import unknown
from ptrun.errors import UserError
from ptrun.types import RunResult

NAMES = ("task", "method", "backbone", "setting", "protocol")
K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


@dataclass(frozen=True)
class Cell:
    """Runs that differ only in their seed.

    `differs` lists the settings that distinguish this cell from others of the same names.
    """

    names: tuple[str, ...]
    differs: str
    runs: Sequence[RunResult]

    @property
    def failed(self) -> int:
        """The number of runs that did not finish."""
        return sum(run.status != "finished" for run in self.runs)

    def values(self, split: str) -> list[float]:
        """Return the selecting metric of each finished run on `dev` or `test`."""
        done = [run for run in self.runs if run.status == "finished"]
        return [run.metrics[split][run.metric] for run in done if run.metrics[split]]


@dataclass(frozen=True)
class Merged:
    """Cells that differ only in the value of one key, by that value."""

    names: tuple[str, ...]
    differs: str
    cells: Mapping[str, Cell]


def cells(results: Sequence[RunResult]) -> list[Cell]:
    """Group results by everything except their seed."""
    groups = list(grouped(results, lambda run: run.group).values())
    told = zip(groups, _differences(groups, "seed"), strict=True)
    found = [Cell(_names(runs[0]), differs, runs) for runs, differs in told]
    return sorted(found, key=lambda cell: (cell.names, cell.differs))


def merged(results: Sequence[RunResult], key: str) -> list[Merged]:
    """Group results by everything except their seed and one key of the configuration.

    Args:
        results: the results.
        key: the key's path, such as `readout.pattern`.

    Raises:
        UserError: no result has the key.
    """
    flats = [flat(run.config) for run in results]
    if not any(key in config for config in flats):
        varied = _varied(flats)
        siblings = {k for k in varied if k.split(".")[0] == key.split(".")[0]}
        raise UserError(unknown(f"report --over {key}", key, siblings or varied))

    def rest(run: RunResult) -> str:
        config = flat(run.config)
        return str(sorted((name, config[name]) for name in config.keys() - {key, "seed"}))

    groups = list(grouped(results, rest).values())
    told = zip(groups, _differences(groups, key), strict=True)
    found = [Merged(_names(runs[0]), differs, _by_value(key, runs)) for runs, differs in told]
    return sorted(found, key=lambda row: (row.names, row.differs))


def _by_value(key: str, runs: Sequence[RunResult]) -> dict[str, Cell]:
    groups = grouped(runs, lambda run: str(flat(run.config).get(key)))
    return {value: Cell(_names(own[0]), f"{key}={value}", own) for value, own in groups.items()}


def grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Return items in groups of equal keys."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def _names(run: RunResult) -> tuple[str, ...]:
    return tuple(run.names.get(name, "?") for name in NAMES)


def _differences(groups: Sequence[Sequence[RunResult]], except_key: str) -> list[str]:
    """Return `key=value` for each setting in which groups of the same names differ.

    Each configuration is flattened once: a sweep may have thousands.
    """
    firsts = [(_names(runs[0]), flat(runs[0].config)) for runs in groups]
    rivals = grouped(firsts, lambda first: first[0])
    varied = {
        names: _varied([config for _, config in own]) - {"seed", except_key}
        for names, own in rivals.items()
    }
    return [
        " ".join(f"{key}={value}" for key, value in config.items() if key in varied[names])
        for names, config in firsts
    ]


def _varied(flats: Sequence[Mapping[str, object]]) -> set[str]:
    """Return the keys in which configurations differ."""
    keys = {key for config in flats for key in config}
    return {key for key in keys if len({str(config.get(key)) for config in flats}) > 1}
