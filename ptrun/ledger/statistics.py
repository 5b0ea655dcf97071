"""The comparison of several seeds with a printed number: statistic, interval and verdict."""

import math
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from operator import itemgetter
from typing import Literal

from ptrun.ledger.aggregate import mean_of_best

Verdict = Literal["within", "above", "below", "not comparable", "not run"]
Statistic = Callable[[Sequence[float]], float]

RESAMPLES = 2000
LEVEL = 0.95
CHOSEN = ("best_3", "max", "min")  # statistics that depend on the number of seeds
_KEEP = 3  # DPT: the mean of the best 3 of 10 seeds
_NORMAL = statistics.NormalDist().inv_cdf(0.5 + LEVEL / 2)


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

    Our interval is a bootstrap over seeds: percentiles of the same draws for every row. It is
    widened for few seeds: the percentiles of five contain the true mean in 83 % of cases, not
    95 %. Below five seeds it is Student's interval of the mean. A printed deviation `std` over
    `seeds` is added in squares. Half a `unit`, the paper's last digit, is added for rounding.
    """
    if len(scores) < 2:
        return None
    own = statistic_of(statistic)(scores)
    low, high = _student(scores) if len(scores) < 5 else _bootstrap(scores, statistic)
    theirs = _NORMAL * std / math.sqrt(seeds) if std else 0.0
    wide = _widened(len(scores))
    below, above = (math.hypot(wide * side, theirs) for side in (own - low, high - own))
    gap, half = own - paper, unit / 2
    return Interval(gap, gap - below - half, gap + above + half)


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


def _bootstrap(scores: Sequence[float], statistic: str) -> tuple[float, float]:
    rule = statistic_of(statistic)
    drawn = sorted(rule(draw(scores)) for draw in _draws(len(scores)))
    tail = int((1 - LEVEL) / 2 * RESAMPLES)
    return drawn[tail], drawn[-tail - 1]


@cache
def _draws(count: int) -> list[Callable[[Sequence[float]], Sequence[float]]]:
    """Return the draws with replacement, which are cached: drawing is the slowest step."""
    dice = random.Random(0)
    return [itemgetter(*dice.choices(range(count), k=count)) for _ in range(RESAMPLES)]


def _widened(count: int) -> float:
    """Return the width of Student's interval of a mean relative to bootstrap percentiles."""
    if count < 5:
        return 1.0  # the interval is Student's
    z, free = _NORMAL, count - 1
    t = z + (z**3 + z) / (4 * free) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * free**2)
    return t / z * math.sqrt(count / free)


_STUDENT = {2: 12.706, 3: 4.303, 4: 3.182}  # 97.5 % points by the number of scores


def _student(scores: Sequence[float]) -> tuple[float, float]:
    half = _STUDENT[len(scores)] * statistics.stdev(scores) / math.sqrt(len(scores))
    middle = statistics.fmean(scores)
    return middle - half, middle + half
