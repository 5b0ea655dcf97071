"""Rules that combine the runs of several seeds into one number or one prediction per example."""

import math
import statistics
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

L = TypeVar("L", bound=Hashable)


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation of `n` scores; the deviation divides by `n - ddof`."""

    mean: float
    std: float | None
    """None unless `n` is above `ddof`."""
    n: int
    ddof: int


def mean_std(scores: Sequence[float], *, ddof: Literal[0, 1] = 1) -> Spread:
    """Return mean and deviation. `ddof=1` is the rule of our own tables, `ddof=0` that of IDPG's.

    Raises:
        ValueError: `scores` is empty.
    """
    _refuse_empty(scores)
    deviation = statistics.stdev if ddof else statistics.pstdev
    std = deviation(scores) if len(scores) > ddof and all(map(math.isfinite, scores)) else None
    return Spread(statistics.fmean(scores), std, len(scores), ddof)


def mean_of_best(scores: Sequence[float], *, keep: int) -> float:
    """Return the mean of the `keep` highest scores: DPT keeps 3 of 10 seeds by their test score.

    This is optimistic and hides collapsed seeds. Report `mean_std` and the minimum beside it.

    Raises:
        ValueError: `keep` is below 1 or above the number of scores.
    """
    if not 1 <= keep <= len(scores):
        raise ValueError(f"keep is {keep}; there are {len(scores)} scores: use 1 to that number.")
    return statistics.fmean(sorted(scores, reverse=True)[:keep])


def near_best(scores: Sequence[float], *, points: float = 2.0) -> int:
    """Return how many scores are at most `points` below the highest.

    Raises:
        ValueError: `scores` is empty.
    """
    _refuse_empty(scores)
    return sum(max(scores) - score <= points for score in scores)


def best_on_dev(dev: Sequence[float], test: Sequence[float]) -> float:
    """Return the test score of the run with the best dev score.

    Ties on dev are common with 32 examples. Tied runs count equally: the result is the mean of
    their test scores and does not depend on the order of seeds.

    Raises:
        ValueError: there is no run, or dev and test differ in number.
    """
    _refuse_empty(dev)
    if len(dev) != len(test):
        raise ValueError(f"{len(dev)} dev scores for {len(test)} test scores.")
    return statistics.fmean(t for d, t in zip(dev, test, strict=True) if d == max(dev))


def majority_vote(predictions: Sequence[Sequence[L]]) -> list[L]:
    """Return the most common label of each example; each row of `predictions` is one seed.

    The earliest seed breaks a tie. IDPG calls this bagging: 5 seeds and two classes cannot tie.

    Raises:
        ValueError: there is no seed, or the seeds have different numbers of examples.
    """
    return [Counter(labels).most_common(1)[0][0] for labels in _by_example(predictions)]


def mean_vote(predictions: Sequence[Sequence[float]]) -> list[float]:
    """Return the mean number of each example: IDPG's bagging of STS-B, a regression.

    Raises:
        ValueError: as `majority_vote`.
    """
    return [statistics.fmean(numbers) for numbers in _by_example(predictions)]


def _by_example(predictions: Sequence[Sequence[L]]) -> list[tuple[L, ...]]:
    _refuse_empty(predictions)
    counts = sorted({len(row) for row in predictions})
    if len(counts) > 1:
        raise ValueError(f"The seeds predict {counts} examples; all need the same examples.")
    return list(zip(*predictions, strict=True))


def _refuse_empty(runs: Sequence[object]) -> None:
    if not runs:
        raise ValueError("nothing to aggregate: give at least one run.")
