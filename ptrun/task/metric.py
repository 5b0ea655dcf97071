"""Metrics as pure functions of predictions and targets, all in 0-100."""

from collections.abc import Sequence

Tags = Sequence[str]


def accuracy(predicted: Sequence[str], targets: Sequence[str]) -> float:
    """Return the share of equal pairs."""
    return 100.0 * sum(p == t for p, t in zip(predicted, targets, strict=True)) / len(targets)


def entity_scores(predicted: Sequence[Tags], targets: Sequence[Tags]) -> dict[str, float]:
    """Return micro F1, precision and recall over entity chunks.

    This is seqeval in its default mode: conlleval's rules on IOB2, in which a stray `I-X` opens a
    chunk.
    """
    from seqeval.metrics import f1_score, precision_score, recall_score

    golds, guesses = [list(t) for t in targets], [list(p) for p in predicted]
    scorers = {"f1": f1_score, "precision": precision_score, "recall": recall_score}
    return {
        name: 100.0 * float(scorer(golds, guesses, zero_division=0))
        for name, scorer in scorers.items()
    }
