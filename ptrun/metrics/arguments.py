"""The official score of SRL; P-tuning v2 reports `ptrun.metrics.entities` instead.

Two rules of the CoNLL-2005 scorer differ. The predicate's own span `V` does not count. A
continuation `C-X` belongs to the latest `X` before it, and both are right only together. The score
is mostly lower, because the input gives `V`, which is nearly always right.
"""

from collections.abc import Sequence

from ptrun.metrics.entities import entities
from ptrun.metrics.pairs import paired

Tags = Sequence[str]
Span = tuple[int, int]
Argument = tuple[str, tuple[Span, ...]]


def argument_scores(predicted: Sequence[Tags], targets: Sequence[Tags]) -> dict[str, float]:
    """Return micro F1, precision and recall over whole arguments, 0-100.

    One item is one predicate's tags. A ratio that is undefined is 0, as in `entity_scores`.
    """
    aligned = [list(zip(*paired(p, t), strict=True)) for p, t in paired(predicted, targets)]
    pairs = [(_arguments(guess), _arguments(gold)) for guess, gold in aligned]
    right = sum(len(guess & gold) for guess, gold in pairs)
    guessed = sum(len(guess) for guess, _ in pairs)
    wanted = sum(len(gold) for _, gold in pairs)
    return {
        "f1": _share(2 * right, guessed + wanted),
        "precision": _share(right, guessed),
        "recall": _share(right, wanted),
    }


def _arguments(tags: Tags) -> set[Argument]:
    """Return the arguments of a predicate; a `C-X` with no `X` before it is an `X`."""
    arguments: list[tuple[str, list[Span]]] = []
    latest: dict[str, list[Span]] = {}
    for kind, first, last in entities(tags):
        role = kind.removeprefix("C-")
        if role == kind or role not in latest:
            latest[role] = []
            arguments.append((role, latest[role]))
        latest[role].append((first, last))
    return {(role, tuple(spans)) for role, spans in arguments if role != "V"}


def _share(part: int, whole: int) -> float:
    return 100.0 * part / whole if whole else 0.0
