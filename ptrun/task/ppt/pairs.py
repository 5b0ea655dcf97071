"""Next-sentence prediction (PPT, sentence pairs): neighbours, lines of one text, or neither."""

from collections.abc import Iterator
from typing import Any

from ptrun.task.ppt.blocks import Case, Need

NEED = Need(lines=5, characters=5, words=5, others=1)
LABELS = ("no", "maybe", "yes")
_RATIO = 100  # largest ratio of the two lengths in characters


def rows(case: Case) -> Iterator[dict[str, Any]]:
    """Yield a pair for each line; the three labels are equally likely.

    The second line is from another document (`no`), from the same document but no neighbour
    (`maybe`), or a neighbour (`yes`). The paper says the next line; its code also takes the
    previous one.
    """
    for place, first in enumerate(case.document):
        label = LABELS[case.rng.randrange(len(LABELS))]
        second = _second(case, place, label)
        if 1 / _RATIO <= len(first) / len(second) <= _RATIO:
            yield {"id": f"{case.number}-{place}", "first": first, "second": second, "label": label}


def neighbours(document: list[str], place: int) -> list[int]:
    """Return the places before and after a place."""
    return [near for near in (place - 1, place + 1) if 0 <= near < len(document)]


def apart(document: list[str], place: int) -> list[int]:
    """Return the places that are neither this one nor its neighbours."""
    return [far for far in range(len(document)) if abs(far - place) > 1]


def _second(case: Case, place: int, label: str) -> str:
    if label == "no":
        return case.rng.choice(case.others[0])
    places = apart if label == "maybe" else neighbours
    return case.document[case.rng.choice(places(case.document, place))]
