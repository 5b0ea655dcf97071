"""The cells of a table of results: runs that differ in their seed, or in one more key, alone."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ptrun.config.flat import flat
from ptrun.config.suggest import unknown
from ptrun.errors import UserError
from ptrun.types import RunResult

NAMES = ("task", "method", "backbone", "setting", "protocol")
K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class Cell:
    """The runs that differ in their seed alone."""

    names: tuple[str, ...]
    differs: str
    """The settings that tell this cell from others of the same names."""
    runs: Sequence[RunResult]

    @property
    def failed(self) -> int:
        """How many of its runs did not finish."""
        return sum(run.status != "finished" for run in self.runs)

    def values(self, part: str) -> list[float]:
        """Return the selecting metric of each finished run on `dev` or `test`."""
        done = [run for run in self.runs if run.status == "finished"]
        return [run.metrics[part][run.metric] for run in done if run.metrics[part]]


@dataclass(frozen=True)
class Merged:
    """Cells that differ in the value of one key alone, by that value."""

    names: tuple[str, ...]
    differs: str
    cells: Mapping[str, Cell]


def cells(results: Sequence[RunResult]) -> list[Cell]:
    """Group results by everything but their seed."""
    groups = _grouped(results, lambda run: run.group)
    found = [
        Cell(_names(runs[0]), _differences(runs[0], _rivals(runs[0], groups)), runs)
        for runs in groups.values()
    ]
    return sorted(found, key=lambda cell: (cell.names, cell.differs))


def merged(results: Sequence[RunResult], key: str) -> list[Merged]:
    """Group results by everything but their seed and one key of the configuration.

    Raises:
        UserError: no result has the key, by its path: `method.pattern`.
    """
    flats = [flat(run.config) for run in results]
    if not any(key in own for own in flats):
        varied = {k for own in flats for k in own if len({str(f.get(k)) for f in flats}) > 1}
        beside = {k for k in varied if k.split(".")[0] == key.split(".")[0]}
        raise UserError(unknown(f"report --over {key}", key, beside or varied))

    def rest(run: RunResult) -> str:
        own = {name: value for name, value in flat(run.config).items() if name not in (key, "seed")}
        return str(sorted(own.items()))

    groups = _grouped(results, rest)
    found = [
        Merged(
            _names(runs[0]), _differences(runs[0], _rivals(runs[0], groups), key), _by(key, runs)
        )
        for runs in groups.values()
    ]
    return sorted(found, key=lambda row: (row.names, row.differs))


def _by(key: str, runs: Sequence[RunResult]) -> dict[str, Cell]:
    own = _grouped(runs, lambda run: str(flat(run.config).get(key)))
    return {value: Cell(_names(some[0]), f"{key}={value}", some) for value, some in own.items()}


def _grouped(
    results: Sequence[RunResult], key: Callable[[RunResult], K]
) -> dict[K, list[RunResult]]:
    groups: dict[K, list[RunResult]] = {}
    for run in results:
        groups.setdefault(key(run), []).append(run)
    return groups


def _names(run: RunResult) -> tuple[str, ...]:
    return tuple(run.names[name] for name in NAMES)


def _rivals(run: RunResult, groups: Mapping[K, Sequence[RunResult]]) -> list[RunResult]:
    """Return one run of each group of the same names."""
    return [runs[0] for runs in groups.values() if _names(runs[0]) == _names(run)]


def _differences(run: RunResult, rivals: Sequence[RunResult], besides: str = "seed") -> str:
    """Return `key=value` for each setting in which the rivals are not all alike."""
    flats = [flat(rival.config) for rival in rivals]
    own = flat(run.config)
    keys = [key for key in own if len({str(f.get(key)) for f in flats}) > 1]
    return " ".join(f"{key}={own[key]}" for key in keys if key not in ("seed", besides))
