"""Scores of tagged chunks, all in 0-100."""

from collections.abc import Sequence

from ptrun.metrics.pairs import paired

Tags = Sequence[str]


def entity_scores(predicted: Sequence[Tags], targets: Sequence[Tags]) -> dict[str, float]:
    """Return micro F1, precision and recall over entity chunks.

    This is seqeval in its default mode: conlleval's rules on IOB2, in which a stray `I-X` opens a
    chunk. P-tuning v2 scores SRL with it too; see `ptrun.metrics.arguments` for the official
    score of SRL.
    """
    from seqeval.metrics import f1_score, precision_score, recall_score

    guesses, golds = zip(*((list(p), list(t)) for p, t in paired(predicted, targets)), strict=True)
    scorers = {"f1": f1_score, "precision": precision_score, "recall": recall_score}
    return {
        name: 100.0 * float(scorer(golds, guesses, zero_division=0))
        for name, scorer in scorers.items()
    }
