"""Scores of one label per example: accuracy, F1 of a class, and its means over classes.

A class that is neither predicted nor gold has F1 0, as in scikit-learn with `zero_division=0`.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from typing import Literal

from ptrun.metrics.pairs import paired, percent

Labels = Sequence[Hashable]
Metric = Literal["accuracy", "macro_f1", "f1", "accuracy_f1"]


def score(
    metric: Metric, predicted: Labels, targets: Labels, *, positive: Hashable = None
) -> float:
    """Return a metric by its name, 0-100; `f1` and `accuracy_f1` need the `positive` label."""
    if metric == "accuracy":
        return accuracy(predicted, targets)
    if metric == "macro_f1":
        return macro_f1(predicted, targets)
    scorer = binary_f1 if metric == "f1" else accuracy_and_f1
    return scorer(predicted, targets, positive=positive)


def accuracy(predicted: Labels, targets: Labels) -> float:
    """Return the share of equal pairs, 0-100."""
    return percent([float(p == t) for p, t in paired(predicted, targets)])


def binary_f1(predicted: Labels, targets: Labels, *, positive: Hashable) -> float:
    """Return the F1 of the positive class, 0-100; every other label counts as negative."""
    return percent(_f1_of([positive], predicted, targets))


def macro_f1(predicted: Labels, targets: Labels) -> float:
    """Return the mean F1 over the classes that are gold or predicted, 0-100.

    This is scikit-learn's default, which PPT uses for CB. PPT predicts words of the vocabulary, so
    each predicted word that is no label adds a class with F1 0. For a head over the task's labels,
    it equals `macro_f1_over` unless a class is neither gold nor predicted.
    """
    return percent(_f1_of({*predicted, *targets}, predicted, targets))


def macro_f1_over(classes: Collection[Hashable], predicted: Labels, targets: Labels) -> float:
    """Return the mean F1 over a task's classes, 0-100: CB's three in P-tuning.

    A prediction outside the classes is wrong but adds no class.

    Raises:
        ValueError: a target is not one of the classes.
    """
    for stray in set(targets) - set(classes):
        raise ValueError(f"target {stray!r} is not one of {sorted(map(str, classes))}.")
    return percent(_f1_of(classes, predicted, targets))


def accuracy_and_f1(predicted: Labels, targets: Labels, *, positive: Hashable) -> float:
    """Return the mean of accuracy and binary F1, 0-100: MRPC and QQP in IDPG."""
    f1 = binary_f1(predicted, targets, positive=positive)
    return (accuracy(predicted, targets) + f1) / 2


def _f1_of(classes: Collection[Hashable], predicted: Labels, targets: Labels) -> list[float]:
    """Return the F1 of each class, 0-1: twice the hits over predicted plus gold."""
    hits = Counter(p for p, t in paired(predicted, targets) if p == t)
    seen = Counter(predicted) + Counter(targets)
    return [2 * hits[c] / seen[c] if seen[c] else 0.0 for c in classes]
