"""Fact probing (LAMA): precision at 1, the share of facts whose best prediction is the object."""

from collections.abc import Sequence
from statistics import fmean

from ptrun.metrics.labels import accuracy
from ptrun.metrics.pairs import paired, percent


def precision_at_1(
    predicted: Sequence[str], targets: Sequence[str], relations: Sequence[str]
) -> dict[str, float]:
    """Return P@1 in 0-100: `p_at_1`, the mean over relations, and `p_at_1_facts`, over facts.

    The published tables use the mean over relations, as LAMA does (P-tuning does not say). A
    prediction is the best word of the allowed vocabulary; leave out facts with another object.
    """
    hits: dict[str, list[float]] = {}
    for relation, (guess, gold) in paired(relations, paired(predicted, targets)):
        hits.setdefault(relation, []).append(float(guess == gold))
    by_relation = fmean(map(percent, hits.values()))
    return {"p_at_1": by_relation, "p_at_1_facts": accuracy(predicted, targets)}
