"""Correlation of predicted with gold numbers, for STS-B; -100 to 100.

If all predictions or all targets are equal, the coefficient is undefined and scored 0. So a
collapsed run gets a number that can be averaged, never NaN.
"""

from collections.abc import Sequence
from itertools import groupby
from math import frexp, isfinite, ldexp
from statistics import correlation

from ptrun.metrics.pairs import paired

Numbers = Sequence[float]


def pearson(predicted: Numbers, targets: Numbers) -> float:
    """Return 100 times the linear correlation; 0 if one side is constant.

    Raises:
        ValueError: a number is not finite, or there are fewer than two pairs.
    """
    for pair in paired(predicted, targets):
        if not all(map(isfinite, pair)):
            raise ValueError(f"prediction and target {pair} must be finite.")
    if len(targets) < 2:
        raise ValueError("a correlation needs at least two pairs; got 1.")
    if min(predicted) == max(predicted) or min(targets) == max(targets):
        return 0.0
    return 100.0 * correlation(_scaled(predicted), _scaled(targets))


def _scaled(values: Numbers) -> list[float]:
    """Return values times a power of two, at most 1, so that no square overflows or vanishes."""
    _, exponent = frexp(max(map(abs, values)))
    return [ldexp(value, -exponent) for value in values]


def spearman(predicted: Numbers, targets: Numbers) -> float:
    """Return 100 times the linear correlation of ranks; equal numbers share their mean rank."""
    return pearson(_ranks(predicted), _ranks(targets))


def pearson_and_spearman(predicted: Numbers, targets: Numbers) -> float:
    """Return the mean of both coefficients, -100 to 100: STS-B in IDPG."""
    return (pearson(predicted, targets) + spearman(predicted, targets)) / 2


def _ranks(values: Numbers) -> list[float]:
    """Return ranks from 1, with the mean rank if values are equal."""
    ranks, before = [0.0] * len(values), 0
    order = sorted(range(len(values)), key=lambda i: values[i])
    for _, group in groupby(order, key=lambda i: values[i]):
        tied = list(group)
        for i in tied:
            ranks[i] = before + (len(tied) + 1) / 2
        before += len(tied)
    return ranks
