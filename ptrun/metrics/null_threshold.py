"""SQuAD 2.0: the threshold of the null score above which "no answer" is predicted.

The best threshold is chosen on the questions it is scored on, so its scores are optimistic.
P-tuning v2 does not use it; its threshold is 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ptrun.metrics.pairs import paired
from ptrun.metrics.squad import Answers, Match, exact_match, match_v2, token_f1_or_null


@dataclass(frozen=True)
class Threshold:
    """A score in 0-100, and the threshold that gives it, in units of the null scores."""

    score: float
    value: float


def at_threshold(
    predicted: Sequence[str], null_scores: Sequence[float], threshold: float
) -> list[str]:
    """Return the predictions, or "" if the null score is above the threshold."""
    return ["" if null > threshold else p for p, null in paired(predicted, null_scores)]


def best_thresholds(
    predicted: Sequence[str], targets: Sequence[Answers], null_scores: Sequence[float]
) -> dict[str, Threshold]:
    """Return the best threshold for exact match (`em`) and for F1 (`f1`).

    Args:
        predicted: the answer to each question; "" means "no answer" at any threshold.
        targets: the gold answers of each question; an empty list if it has none.
        null_scores: compared with the threshold; larger means that "no answer" is more likely.
    """
    return {
        name: _best(match, predicted, targets, null_scores)
        for name, match in (("em", exact_match), ("f1", token_f1_or_null))
    }


def _best(
    match: Match,
    predicted: Sequence[str],
    targets: Sequence[Answers],
    null_scores: Sequence[float],
) -> Threshold:
    """Start with no answers, then answer the questions in order of increasing null score.

    Three quirks of the official script are kept. Questions with equal null scores are answered one
    by one, so with ties no threshold may reach the best score. If no answers at all score best, the
    threshold is 0.0, whatever the scale of the null scores. An answer that is empty after
    normalisation still counts as an answer.
    """
    pairs = paired(predicted, targets)
    total = best = float(sum(not golds for golds in targets))
    value = 0.0
    for null, (prediction, golds) in sorted(paired(null_scores, pairs), key=lambda item: item[0]):
        total += match_v2(match, prediction, golds) if golds else -float(bool(prediction))
        if total > best:
            best, value = total, null
    return Threshold(100.0 * best / len(pairs), value)
