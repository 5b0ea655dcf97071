"""MultiRC: several candidate answers to a question, each right or wrong on its own."""

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
    """Return F1a, the binary F1 over all answers, and EM, the share of questions all right, 0-100.

    Args:
        predicted: the label of each candidate answer.
        targets: its gold label.
        questions: which question each answer is for; name the paragraph in it too, since question
            numbers are unique within some files only.
        positive: the label of a right answer.
    """
    all_right: dict[Hashable, bool] = {}
    for question, (guess, gold) in paired(questions, paired(predicted, targets)):
        all_right[question] = all_right.get(question, True) and guess == gold
    return {
        "f1a": binary_f1(predicted, targets, positive=positive),
        "em": percent(list(map(float, all_right.values()))),
    }
