"""DROP's exact match and F1 over several answer spans, as DPT uses them for QUOREF."""

import re
import string
from collections.abc import Sequence

from ptrun.metrics.assignment import best_assignment
from ptrun.metrics.pairs import paired, percent

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")

Spans = Sequence[str]
Bag = frozenset[str]


def normalise(text: str) -> str:
    """Return the words between spaces and hyphens, each normalised, joined by one space.

    Each word becomes lower case, and loses its punctuation unless it is a number. Then numbers are
    written as floats (`1,000` and `1000` both give `1000.0`), and articles are removed.
    """
    words = [_word(piece) for piece in re.split("[ -]", text.lower())]
    return " ".join(word for word in words if word)


def drop_scores(predicted: Sequence[Spans], targets: Sequence[Spans]) -> dict[str, float]:
    """Return exact match and F1, 0-100: means over questions.

    Raises:
        ValueError: a question has no gold span.
    """
    pairs = paired(predicted, targets)
    return {
        "em": percent([_exact(guess, gold) for guess, gold in pairs]),
        "f1": percent([_f1(guess, gold) for guess, gold in pairs]),
    }


def _exact(predicted: Spans, gold: Spans) -> float:
    """Return 1 if the sets of normalised spans and the numbers of spans are equal, else 0."""
    same = {normalise(span) for span in predicted} == {normalise(span) for span in gold}
    return float(same and len(predicted) == len(gold))


def _f1(predicted: Spans, gold: Spans) -> float:
    """Return a question's F1, 0-1: the F1 sum of its best pairs over the larger number of spans.

    Rounded to 2 decimals as numpy rounds, since the scorer's mean is a numpy float: 100 times the
    value to the nearest even integer. Python's `round(value, 2)` differs by 0.01 at some halves.
    """
    if not gold:
        raise ValueError(f"predicted spans {list(predicted)} have no gold span to compare with.")
    guesses, golds = [_bag(span) for span in predicted], [_bag(span) for span in gold]
    table = [[_bag_f1(guess, wanted) for guess in guesses] for wanted in golds]
    values = [table[row][column] for row, column in best_assignment(table)]
    return round(100 * (sum(values) / max(len(guesses), len(golds)))) / 100


def _bag_f1(guess: Bag, gold: Bag) -> float:
    """Return the F1 of two sets of words, 0-1; 0 if gold has numbers and none is shared.

    The order of operations is the scorer's: 3 of 5 words right give 0.7499..., and half of it
    rounds to 0.37; the exact 3/4 would give 0.38.
    """
    numbers = {word for word in gold if _is_number(word)}
    if numbers and not numbers & guess:
        return 0.0
    shared = len(gold & guess)
    precision = shared / len(guess) if guess else 1.0
    recall = shared / len(gold) if gold else 1.0
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def _bag(span: str) -> Bag:
    return frozenset(normalise(span).split())


def _word(piece: str) -> str:
    bare = piece if _is_number(piece) else piece.translate(_PUNCTUATION)
    number = str(float(bare)) if _is_number(bare) else bare
    return " ".join(_ARTICLES.sub(" ", number).split())


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
