"""MultiRC: several candidate answers to a question, each right or wrong by itself."""

from collections.abc import Hashable, Sequence

from ptrun.metrics.labels import Labels, binary_f1
from ptrun.metrics.pairs import paired, percent


def multirc_scores(
    predicted: Labels,
    targets: Labels,
    questions: Sequence[Hashable],
    *,
    positive: Hashable,
) -> dict[str, float]:
    """Return F1a, the binary F1 over all answers, and EM over whole questions, 0-100.

    Args:
        predicted: the predicted label of each candidate answer.
        targets: the gold label of each candidate answer.
        questions: the question of each answer. Include the paragraph, because question numbers are
            not unique in some files.
        positive: the label of a right answer.
    """
    all_right: dict[Hashable, bool] = {}
    for question, (guess, gold) in paired(questions, paired(predicted, targets)):
        all_right[question] = all_right.get(question, True) and guess == gold
    return {
        "f1a": binary_f1(predicted, targets, positive=positive),
        "em": percent(list(map(float, all_right.values()))),
    }
