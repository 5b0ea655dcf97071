"""The cells of a table of results: runs that differ only in their seed, or in one more key."""

import math
import statistics
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from ptrun.config.identity import flat
from ptrun.config.writing import value_text
from ptrun.errors import UserError, unknown
from ptrun.types import RunResult

NAMES = ("task", "method", "backbone", "setting", "protocol")
K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


@dataclass(frozen=True)
class SeedGroup:
    """Runs in one row of a table: they differ only in their seed, or also in the value of one key.

    Args:
        names: the option of each group of `NAMES`.
        differs: the settings that distinguish this row from others of the same names.
        by_value: the runs of each value of the key; without a key each run alone.
    """

    names: tuple[str, ...]
    differs: str
    by_value: Mapping[str, Sequence[RunResult]]

    @property
    def runs(self) -> list[RunResult]:
        """All runs, of each value in the order of their seeds."""
        return [run for runs in self.by_value.values() for run in runs]

    @property
    def where(self) -> tuple[str, ...]:
        """Task, setting and protocol."""
        return self.names[0], *self.names[3:]

    @property
    def hardly_learned(self) -> str:
        """How many runs hardly learned, why and at which rate."""
        return hardly_learned(self.runs)

    def scores(self, split: str) -> dict[str, float]:
        """Return the mean of the selecting metric over a value's finished runs, on dev or test.

        A value without a score is left out.
        """
        means: dict[str, float] = {}
        for value, runs in self.by_value.items():
            finished = [run for run in runs if run.status == "finished" and run.metrics[split]]
            if finished:
                means[value] = statistics.fmean(r.metrics[split][r.metric] for r in finished)
        return means


def cells(results: Sequence[RunResult], over: str | None = None) -> list[SeedGroup]:
    """Group results by all except their seed, and the key `over`, such as `readout.pattern`."""
    results = sorted(results, key=lambda run: run.seed)
    if over is None:
        groups = list(grouped(results, lambda run: run.group).values())
        by_value = [{str(place): [run] for place, run in enumerate(runs)} for runs in groups]
    else:
        flats = [flat(run.config) for run in results]
        if not any(over in config for config in flats):
            varied = _varied(flats)
            siblings = {k for k in varied if k.split(".")[0] == over.split(".")[0]}
            raise UserError(unknown(f"report --over {over}", over, siblings or varied))

        def rest(run: RunResult) -> str:
            config = flat(run.config)
            return str(sorted((name, config[name]) for name in config.keys() - {over, "seed"}))

        groups = list(grouped(results, rest).values())
        by_value = [grouped(runs, lambda run: str(flat(run.config).get(over))) for runs in groups]
    told = zip(groups, _differences(groups, over or "seed"), by_value, strict=True)
    rows = [SeedGroup(_names(runs[0]), differs, values) for runs, differs, values in told]
    return sorted(rows, key=lambda row: (row.names, row.differs))


def hardly_learned(runs: Iterable[RunResult]) -> str:
    """Return `2 of 3 runs hardly learned (the loss rose) at train.lr=0.1`; empty if all learned."""
    finished = [run for run in runs if run.status == "finished"]
    stuck = [run for run in finished if run.signs]
    if not stuck:
        return ""
    signs = ", ".join(dict.fromkeys(sign for run in stuck for sign in run.signs))
    rates = sorted({run.rate for run in stuck if run.rate})
    at = f" at train.lr={', '.join(f'{rate:g}' for rate in rates)}" if rates else ""
    return f"{len(stuck)} of {len(finished)} runs hardly learned ({signs}){at}"


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

    Flat configurations are not kept: a sweep may have thousands.
    """
    firsts = [runs[0] for runs in groups]
    varied = {
        names: _varied(flat(run.config) for run in runs) - {"seed", except_key}
        for names, runs in grouped(firsts, _names).items()
    }
    texts = []
    for run in firsts:
        keys = varied[_names(run)]
        settings = {key: value for key, value in flat(run.config).items() if key in keys}
        for key, value in settings.items():
            if value is None or isinstance(value, bool):
                settings[key] = value_text(key, value)
        texts.append(" ".join(f"{key}={value}" for key, value in settings.items()))
    return texts


def _varied(flats: Iterable[Mapping[str, object]]) -> set[str]:
    """Return the keys in which configurations differ; one that is missing is None."""
    base: dict[str, str] | None = None  # the first configuration
    varied: set[str] = set()
    for config in flats:
        settings = {key: str(value) for key, value in config.items()}
        base = settings if base is None else base
        keys = {*settings, *base}
        varied |= {key for key in keys if settings.get(key, "None") != base.get(key, "None")}
    return varied


# Rules that combine the scores of several seeds into one number.


def mean_std(scores: Sequence[float], *, ddof: Literal[0, 1] = 1) -> tuple[float, float | None]:
    """Return mean and standard deviation; that of at most `ddof` scores is None.

    `ddof=1` is the rule of our own tables, `ddof=0` that of IDPG's.
    """
    deviation = statistics.stdev if ddof else statistics.pstdev
    std = deviation(scores) if len(scores) > ddof and all(map(math.isfinite, scores)) else None
    return statistics.fmean(scores), std


def mean_of_best(scores: Sequence[float], *, keep: int) -> float:
    """Return the mean of the `keep` highest scores: DPT keeps 3 of 10 seeds by their test score.

    This is optimistic and hides collapsed seeds. Report `mean_std` and the minimum beside it.
    """
    return statistics.fmean(sorted(scores, reverse=True)[:keep])
