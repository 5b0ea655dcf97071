"""ReCoRD: the entity chosen for a query, compared with the gold entities by SQuAD 1.1's rules."""

from collections.abc import Sequence

from ptrun.metrics.squad import Answers, squad_scores


def record_scores(predicted: Sequence[str], targets: Sequence[Answers]) -> dict[str, float]:
    """Return exact match and token F1 after normalisation, the best over gold entities, 0-100.

    One item is one query with its chosen entity.
    """
    return squad_scores(predicted, targets)
