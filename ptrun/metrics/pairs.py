"""Shared by all metrics: pairs of predictions and targets, and a mean in 0-100."""

from collections.abc import Sequence
from math import fsum
from typing import TypeVar

P = TypeVar("P")
T = TypeVar("T")


def paired(predicted: Sequence[P], targets: Sequence[T]) -> list[tuple[P, T]]:
    """Return pairs of predictions and targets at the same position.

    Raises:
        ValueError: the lengths differ, or there is nothing to score.
    """
    if len(predicted) != len(targets):
        raise ValueError(f"{len(predicted)} predictions for {len(targets)} targets.")
    if not targets:
        raise ValueError("no targets: a score needs at least one.")
    return list(zip(predicted, targets, strict=True))


def percent(values: Sequence[float]) -> float:
    """Return the mean of values in 0-1, as a number in 0-100."""
    return 100.0 * fsum(values) / len(values)
