"""SQuAD 2.0: from which null score on "no answer" is given, and the best such threshold.

The best threshold is found on the very questions it is scored on, so `best_*` are optimistic:
P-tuning v2 does not use them, its threshold is 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ptrun.metrics.pairs import paired
from ptrun.metrics.squad import Answers, Match, exact_match, match_v2, token_f1_or_null


@dataclass(frozen=True)
class Threshold:
    """A score in 0-100, and the threshold that gives it, in the unit of the null scores."""

    score: float
    value: float


def at_threshold(
    predicted: Sequence[str], null_scores: Sequence[float], threshold: float
) -> list[str]:
    """Return the predictions, with "" where the null score is above the threshold."""
    return ["" if null > threshold else p for p, null in paired(predicted, null_scores)]


def best_thresholds(
    predicted: Sequence[str], targets: Sequence[Answers], null_scores: Sequence[float]
) -> dict[str, Threshold]:
    """Return the best threshold for exact match (`em`) and for F1 (`f1`).

    Args:
        predicted: the answer of each question if it is answered; "" for none at any threshold.
        targets: the gold answers of each question, an empty list for none.
        null_scores: what is compared with the threshold; larger means "no answer" is likelier.
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
    """Sweep the official way: start with all null, then answer from the lowest null score up.

    Three official quirks are kept. Equal null scores are answered one by one in the given order,
    so with ties the best score may lie between what thresholds can reach. Where all null is best
    the threshold is 0.0, whatever the scale of the null scores. An answer that normalises to
    nothing still counts as one, wrong where none is wanted.
    """
    pairs = paired(predicted, targets)
    total = best = float(sum(not golds for golds in targets))
    value = 0.0
    for null, (prediction, golds) in sorted(paired(null_scores, pairs), key=lambda item: item[0]):
        total += match_v2(match, prediction, golds) if golds else -float(bool(prediction))
        if total > best:
            best, value = total, null
    return Threshold(100.0 * best / len(pairs), value)
