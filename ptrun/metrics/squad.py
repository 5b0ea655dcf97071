"""SQuAD 1.1 and 2.0: exact match and token F1 after normalisation, the best over gold answers."""

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence

from ptrun.metrics.pairs import paired, percent

_PUNCTUATION = str.maketrans("", "", string.punctuation)  # ASCII only, as the official scorers
_ARTICLES = re.compile(r"\b(a|an|the)\b")

Answers = Sequence[str]
Match = Callable[[str, str], float]
"""A prediction and one gold answer to a value in 0-1."""


def normalise(text: str) -> str:
    """Return text in lower case without punctuation, articles and extra space, in that order."""
    bare = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", bare).split())


def exact_match(prediction: str, gold: str) -> float:
    """Return 1 if both normalise to the same text, else 0."""
    return float(normalise(prediction) == normalise(gold))


def token_f1(prediction: str, gold: str) -> float:
    """Return the F1 of the two bags of words, 0-1; 0 without a shared word, even if both empty."""
    guess, wanted = normalise(prediction).split(), normalise(gold).split()
    shared = (Counter(guess) & Counter(wanted)).total()
    return 2 * shared / (len(guess) + len(wanted)) if shared else 0.0


def token_f1_or_null(prediction: str, gold: str) -> float:
    """Return SQuAD 2.0's F1, 0-1: as `token_f1`, but 1 if both have no words."""
    both_empty = not normalise(prediction) and not normalise(gold)
    return 1.0 if both_empty else token_f1(prediction, gold)


def best(match: Match, prediction: str, answers: Answers) -> float:
    """Return the largest value over the gold answers.

    Raises:
        ValueError: there is no gold answer.
    """
    if not answers:
        raise ValueError(f"prediction {prediction!r} has no gold answer to compare with.")
    return max(match(prediction, gold) for gold in answers)


def squad_scores(predicted: Sequence[str], targets: Sequence[Answers]) -> dict[str, float]:
    """Return SQuAD 1.1's exact match and F1, 0-100; every question has a gold answer."""
    pairs = paired(predicted, targets)
    return {
        "em": percent([best(exact_match, p, golds) for p, golds in pairs]),
        "f1": percent([best(token_f1, p, golds) for p, golds in pairs]),
    }


def squad_v2_scores(predicted: Sequence[str], targets: Sequence[Answers]) -> dict[str, float]:
    """Return SQuAD 2.0's exact match and F1, 0-100: over all questions, and by answerability.

    An empty prediction or an empty list of gold answers means "no answer". The scores
    `has_answer_*` and `no_answer_*` are left out if there is no such question.
    """
    pairs = paired(predicted, targets)
    parts = {
        "": pairs,
        "has_answer_": [pair for pair in pairs if pair[1]],
        "no_answer_": [pair for pair in pairs if not pair[1]],
    }
    return {
        prefix + name: percent([match_v2(match, p, golds) for p, golds in part])
        for prefix, part in parts.items()
        if part
        for name, match in (("em", exact_match), ("f1", token_f1_or_null))
    }


def match_v2(match: Match, prediction: str, answers: Answers) -> float:
    """Return the best value over gold answers that have words, or over "" if none has, 0-1."""
    return best(match, prediction, [a for a in answers if normalise(a)] or [""])
