"""The comparison of several seeds with a printed number: statistic, interval and verdict.

A printed number is itself a draw: one score, or the mean or the best of the authors' few seeds. Two
equal methods therefore differ. The interval of their difference is a prediction interval: it
contains 0 in 95 % of cases where both sides have one distribution.
"""

import math
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Literal

from ptrun.ledger.aggregate import mean_of_best

if TYPE_CHECKING:
    from numpy import ndarray

Verdict = Literal["within", "above", "below", "not final", "not comparable", "not run"]
Statistic = Callable[[Sequence[float]], float]

RESAMPLES = 2000
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
    error = _error(statistics.stdev(scores), len(scores), printed, theirs)
    gap, half = statistic_of(statistic)(scores) - paper, unit / 2
    return Interval(gap, gap - high * error - half, gap - low * error + half)


def _error(own: float, count: int, printed: float | None, seeds: int) -> float:
    """Return the unit of the limits: our deviation, or the standard error of both means."""
    return own if printed is None else math.sqrt(own**2 / count + printed**2 / seeds)


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
    first = {"best_3": -_KEEP, "max": -1}.get(statistic, 0)
    last = 1 if statistic == "min" else None
    combined: ndarray = draws[:, first:last].mean(axis=1)
    return combined


def verdict(gap: Interval | None) -> Verdict:
    """Return the verdict of a difference: `within` if its interval contains 0."""
    if gap is None:
        return "not comparable"
    if gap.low > 0:
        return "above"
    return "below" if gap.high < 0 else "within"


def paired(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return the two-sided p-value of sign flips of paired scores; None below four pairs.

    The p-value of n pairs is at least 2 / 2^n, so three pairs are never significant.
    """
    if len(first) != len(second) or len(first) < 4:
        return None
    gaps = [a - b for a, b in zip(first, second, strict=True)]
    observed, count = abs(sum(gaps)) - 1e-12, 2 ** len(gaps)
    if count <= 2**14:
        flips = product(*((-gap, gap) for gap in gaps))
        return float(sum(abs(sum(flip)) >= observed for flip in flips) / count)
    dice = random.Random(0)
    drawn = (abs(sum(dice.choice((g, -g)) for g in gaps)) for _ in range(RESAMPLES))
    return (1 + sum(total >= observed for total in drawn)) / (1 + RESAMPLES)
