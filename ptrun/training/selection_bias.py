"""The selection bias of the best dev score: the cost of choosing among many candidates."""

import statistics
from collections.abc import Sequence
from math import sqrt
from statistics import NormalDist


def selection_bias(dev_scores: Sequence[float], examples: int) -> float:
    """Return by how much the highest dev score is expected to be too high, in points of 0-100.

    The reference is the winner's score on infinite data of the same kind. The bias is
    `e(n) * b(w) / sqrt(b(m) + t)`, with

    - `e(n)`, the expected maximum of n standard normals, for n candidates;
    - `b(p) = p * (100 - p) / examples`, the binomial variance of a score around p;
    - `m`, the mean dev score;
    - `t`, the variance of the candidates' true scores: the sample variance (ddof 1) of their dev
      scores minus `b(m)`, at least 0;
    - `w`, the estimate of the winner's true score: `m` plus `t / (b(m) + t)` of its lead.

    With equal candidates it is `e(n) * sqrt(b(m))`. True differences make it smaller. It assumes
    that true scores and noise are normal and independent across candidates, and that the score is
    the mean of independent right and wrong predictions. Candidates scored on the same dev set
    share noise, which selection cannot exploit, so the value is an upper estimate.

    Raises:
        ValueError: no candidate, a score outside 0-100, or fewer than 1 dev example.
    """
    if not dev_scores:
        raise ValueError("dev_scores is empty; give at least 1 score.")
    if wrong := [score for score in dev_scores if not 0.0 <= score <= 100.0]:
        raise ValueError(f"dev score {wrong[0]} is outside 0-100; give points.")
    if examples < 1:
        raise ValueError(f"examples is {examples}; a dev score needs at least 1.")
    n, mean = len(dev_scores), statistics.fmean(dev_scores)
    noise = _binomial_variance(mean, examples)
    if n == 1 or noise == 0.0:
        return 0.0
    total = max(noise, statistics.variance(dev_scores))
    winner = mean + (1.0 - noise / total) * (max(dev_scores) - mean)
    return expected_maximum(n) * _binomial_variance(winner, examples) / sqrt(total)


def expected_maximum(n: int) -> float:
    """Return the expected maximum of n independent standard normals, to 1e-9.

    The integral of `x * n * pdf(x) * cdf(x)^(n - 1)`, by the trapezoid rule on -10 to 10.
    """
    normal, step = NormalDist(), 0.01
    points = [i * step for i in range(-1000, 1001)]
    return step * n * sum(x * normal.pdf(x) * normal.cdf(x) ** (n - 1) for x in points)


def _binomial_variance(score: float, examples: int) -> float:
    return score * (100.0 - score) / examples
