"""Our runs of a cell under each protocol: what dev selects of them, and means over cells."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Any, Literal

from ptrun.errors import UserError
from ptrun.papers.experiment import GRID, Cell, Experiment
from ptrun.reporting.cells import grouped, hardly_learned, mean_of_best, mean_std
from ptrun.types import RunResult

if TYPE_CHECKING:
    from numpy import ndarray


PROTOCOLS = ("paper", "honest")


@dataclass(frozen=True)
class Ours:
    """The runs of a cell under one protocol, with the hyper-parameters that dev selected.

    Args:
        scores: the reported metric by seed.
        missing: seeds of the experiment without a finished run.
        failed: seeds whose run failed.
        searched, planned: the number of configurations that dev selected from, and of those that
            the table searches.
        value: the experiment's statistic of the scores.
        std: their standard deviation, divided as the table's; None for one seed.
        learned: learned parameters.
        hardly_learned: how many runs hardly learned, and at which rate; empty if all learned.
        hours: wall-clock hours of all runs.
        costs: the mean of each of `COSTS` over the runs that recorded it.
    """

    scores: Mapping[int, float]
    missing: Sequence[int]
    failed: Sequence[int]
    searched: int
    planned: int
    value: float
    std: float | None
    learned: int
    hours: float
    hardly_learned: str = ""
    costs: Mapping[str, float] = field(default_factory=dict)


ByProtocol = Mapping[str, Ours | None]


def by_protocol(experiment: Experiment, cell: Cell, runs: Sequence[RunResult]) -> ByProtocol:
    """Return the runs of a cell under each protocol."""
    read = _over_grid if experiment.mean_over(cell) == GRID else _ours
    return {
        name: read(
            experiment.under(name), cell, [r for r in runs if r.names.get("protocol") == name]
        )
        for name in PROTOCOLS
    }


def _over_grid(experiment: Experiment, cell: Cell, runs: Sequence[RunResult]) -> Ours | None:
    """Return the mean over all configurations of a cell's grid, or None if one was not run."""
    groups = grouped(runs, lambda run: run.group)
    if len(groups) < experiment.configurations(cell):
        return None
    parts = [_ours(experiment, cell, group) for group in groups.values()]
    average = mean(parts, list(groups), experiment.ddof)
    return average and replace(average, searched=1, planned=1)


def mean(parts: Sequence[Ours | None], places: Sequence[str], ddof: Literal[0, 1]) -> Ours | None:
    """Return the mean of cells by seed: first over the metrics of a place, then over places."""
    ours = [part for part in parts if part is not None]
    if not ours or len(ours) < len(parts):
        return None
    seeds = sorted(set.intersection(*(set(cell.scores) for cell in ours)))
    if not seeds:
        return None
    least = min(ours, key=lambda cell: cell.searched / cell.planned)
    scores = {}
    for seed in seeds:
        by_place: dict[str, list[float]] = {}
        for cell, place in zip(ours, places, strict=True):
            by_place.setdefault(place, []).append(cell.scores[seed])
        scores[seed] = statistics.fmean(map(statistics.fmean, by_place.values()))
    return Ours(
        scores=scores,
        missing=sorted({seed for cell in ours for seed in cell.missing}),
        failed=sorted({seed for cell in ours for seed in cell.failed}),
        searched=least.searched,
        planned=least.planned,
        value=statistics.fmean(scores.values()),
        std=_std(scores, ddof),
        learned=max(cell.learned for cell in ours),
        hours=0.0,
        hardly_learned="; ".join(dict.fromkeys(filter(None, (c.hardly_learned for c in ours)))),
    )


def _ours(experiment: Experiment, cell: Cell, runs: Sequence[RunResult]) -> Ours | None:
    """Return the configuration with the highest mean on dev over its seeds, the first of equals.

    Only configurations with the most finished seeds are compared, so a single seed of another
    configuration cannot win by chance.
    """
    groups = grouped(runs, lambda run: run.group)
    done = {name: [r for r in group if r.status == "finished"] for name, group in groups.items()}
    tried = [name for name, group in done.items() if group]
    if not tried:
        return None
    chosen = max(tried, key=lambda name: (len(done[name]), _mean_on_dev(done[name])))
    metric = experiment.metrics.get(cell.metric) or done[chosen][0].metric
    scores = {run.seed: _score(cell, run, metric) for run in done[chosen]}
    complete = [group for group in done.values() if len(group) >= len(done[chosen])]
    return Ours(
        scores=dict(sorted(scores.items())),
        missing=[seed for seed in experiment.seeds if seed not in scores],
        failed=[run.seed for run in groups[chosen] if run.status != "finished"],
        searched=len(complete),
        planned=max(len(groups), experiment.configurations(cell)),
        value=statistic_of(experiment.statistic)(list(scores.values())),
        std=_std(scores, experiment.ddof),
        learned=done[chosen][0].learned_parameters["total"],
        hours=sum(run.manifest.get("seconds", 0.0) for run in runs) / 3600,
        hardly_learned=hardly_learned(done[chosen]),
        costs=_costs(done[chosen]),
    )


COSTS: Mapping[str, Callable[[Mapping[str, Any]], float]] = {
    "forgetting": lambda m: m["cost"]["forgetting"]["loss"] - m["cost"]["forgetting"]["base"],
    "seconds": lambda m: m["seconds"],
    "gib": lambda m: m["peak_memory_mib"] / 1024,
    "bytes": lambda m: m["cost"]["bytes"],
    "tokens": lambda m: m["cost"]["tokens_added"],
}
"""What a run took, read from its manifest: forgetting in nats a token, seconds with evaluation."""


def _costs(runs: Sequence[RunResult]) -> dict[str, float]:
    costs: dict[str, list[float]] = {}
    for name, run in product(COSTS, runs):
        with suppress(KeyError, TypeError):  # not recorded
            costs.setdefault(name, []).append(COSTS[name](run.manifest))
    return {name: statistics.fmean(values) for name, values in costs.items() if values}


def _std(scores: Mapping[int, float], ddof: Literal[0, 1]) -> float | None:
    return mean_std([*scores.values()], ddof=ddof)[1] if len(scores) > 1 else None


def _score(cell: Cell, run: RunResult, metric: str) -> float:
    """Return the reported score of a run."""
    score = number(run, metric)
    if score is None:
        name = metric if "." in metric else f"test.{metric}"
        raise UserError(f"{cell.key}: run {run.run_id} has no {name}, which the table reports.")
    return score


def number(run: RunResult, metric: str) -> float | None:
    """Return a run's `metric` on test, or `dev.metric` on dev; None if it has no finite one."""
    split, _, key = metric.rpartition(".")
    score = run.metrics.get(split or "test", {}).get(key)
    return float(score) if score is not None and math.isfinite(score) else None


def _mean_on_dev(runs: Sequence[RunResult]) -> float:
    """Return the mean of the finite scores of the selecting metric; -inf if there is none."""
    scores = (number(run, f"dev.{run.metric}") for run in runs)
    finite = [score for score in scores if score is not None]
    return statistics.fmean(finite) if finite else float("-inf")


# The comparison of several seeds with a printed number: statistic, interval and verdict.
#
# A printed number is itself a draw: one score, or the mean or the best of the authors' few seeds.
# Two equal methods therefore differ. The interval of their difference is a prediction interval: it
# contains 0 in 95 % of cases where both sides have one distribution.

Verdict = Literal["within", "above", "below", "not final", "not comparable", "not run"]
Statistic = Callable[[Sequence[float]], float]

LEVEL = 0.95
CHOSEN = ("best_3", "max", "min")  # statistics that depend on the number of seeds
_KEEP = 3  # DPT: the mean of the best 3 of 10 seeds
_SIMULATED = 100_000  # pairs of results; the limits are then known to about 1 %


@dataclass(frozen=True)
class Interval:
    """Our score minus the paper's, in points, with its 95 % interval."""

    difference: float
    low: float
    high: float


def statistic_of(name: str) -> Statistic:
    """Return the statistic `mean`, `best_3`, `max`, `min` or `single`, which is the mean."""
    named: dict[str, Statistic] = {
        "mean": statistics.fmean,
        "single": statistics.fmean,
        "best_3": lambda scores: mean_of_best(scores, keep=min(_KEEP, len(scores))),
        "max": max,
        "min": min,
    }
    return named[name]


def interval(
    scores: Sequence[float],
    statistic: str,
    paper: float,
    std: float | None,
    seeds: int,
    unit: float = 0.0,
) -> Interval | None:
    """Return the difference and its interval; None for a single score, whose spread is unknown.

    Args:
        scores: ours, at least two for an interval.
        statistic: what is printed; `single` is one draw, the others are of `seeds` draws.
        paper: the printed number.
        std: the printed deviation (n - 1) of `seeds` draws; it matters to a mean only.
        seeds: the number of the authors' draws; 0 for a number that is exact.
        unit: the last printed digit; half of it is added for rounding.
    """
    if len(scores) < 2:
        return None
    theirs = min(seeds, 1) if statistic == "single" else seeds
    printed = std if statistic == "mean" and seeds > 1 else None
    low, high = _limits(statistic, len(scores), theirs, printed=printed is not None)
    error = statistics.stdev(scores)
    if printed is not None:  # the standard error of both means
        error = math.sqrt(error**2 / len(scores) + printed**2 / theirs)
    gap, half = statistic_of(statistic)(scores) - paper, unit / 2
    return Interval(gap, gap - high * error - half, gap - low * error + half)


@cache
def _limits(statistic: str, ours: int, theirs: int, *, printed: bool) -> tuple[float, float]:
    """Return the limits of (our statistic - theirs) / error that hold 95 % if both are alike.

    The ratio has no unit and no location, so normal draws of mean 0 and deviation 1 are enough. For
    a mean and a single draw the limits are Student's.
    """
    import numpy as np

    random_draws = np.random.default_rng(0)
    a = random_draws.standard_normal((_SIMULATED, ours))
    b = random_draws.standard_normal((_SIMULATED, theirs))
    error = a.std(axis=1, ddof=1)
    if printed:
        error = np.sqrt(error**2 / ours + b.var(axis=1, ddof=1) / theirs)
    other = _combined(statistic, b) if theirs else 0.0
    ratio, tail = (_combined(statistic, a) - other) / error, (1 - LEVEL) / 2
    if statistic not in CHOSEN:  # symmetric: both tails together are known better
        ratio = np.concatenate([ratio, -ratio])
    low, high = np.quantile(ratio, [tail, 1 - tail])
    return float(low), float(high)


def _combined(statistic: str, draws: "ndarray") -> "ndarray":
    """Return the statistic of each row, `[N, seeds] -> [N]`."""
    draws.sort(axis=1)
    start = {"best_3": -_KEEP, "max": -1}.get(statistic, 0)
    stop = 1 if statistic == "min" else None
    combined: ndarray = draws[:, start:stop].mean(axis=1)
    return combined


def verdict(gap: Interval | None) -> Verdict:
    """Return the verdict of a difference: `within` if its interval contains 0."""
    if gap is None:
        return "not comparable"
    if gap.low > 0:
        return "above"
    return "below" if gap.high < 0 else "within"
