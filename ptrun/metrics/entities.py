"""Scores of entities in tagged sentences, all in 0-100: the rules of seqeval in its default mode.

They are lenient, as conlleval is: the tags O, B, I, E and S open and close entities even if
they break a scheme. A stray `I-X` opens an entity, and a change of type opens another one.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ptrun.metrics.pairs import paired

Tags = Sequence[str]


class Entity(NamedTuple):
    """An entity: its type, and the positions of its first and last tag."""

    kind: str
    first: int
    last: int


def entity_scores(predicted: Sequence[Tags], targets: Sequence[Tags]) -> dict[str, float]:
    """Return micro F1, precision and recall over entities; 0 if a ratio is undefined.

    P-tuning v2 scores SRL with it too. The official scorer of SRL leaves out the predicate's own
    span `V`, which is nearly always right, and joins a continuation `C-X` with its `X`.

    Raises:
        ValueError: a sentence has more or fewer predicted tags than target tags.
    """
    for guess, gold in paired(predicted, targets):
        if len(guess) != len(gold):
            raise ValueError(f"a sentence has {len(guess)} predicted tags for {len(gold)} targets.")
    guesses, golds = set(entities(_joined(predicted))), set(entities(_joined(targets)))
    right = len(guesses & golds)
    precision, recall = right / (len(guesses) or 1), right / (len(golds) or 1)
    f1 = 2 * precision * recall / (precision + recall or 1)
    return {"f1": 100.0 * f1, "precision": 100.0 * precision, "recall": 100.0 * recall}


def entities(tags: Tags) -> list[Entity]:
    """Return the entities of a sentence, in order; a tag without a type has the type `_`."""
    chunks, first = [], 0
    mark_before, kind_before = "O", ""
    for place, tag in enumerate([*tags, "O"]):
        mark, kind = tag[0], tag[1:].split("-", maxsplit=1)[-1] or "_"
        if _ends(mark_before, mark) or (mark_before not in "O." and kind != kind_before):
            chunks.append(Entity(kind_before, first, place - 1))
        if _begins(mark_before, mark) or (mark not in "O." and kind != kind_before):
            first = place
        mark_before, kind_before = mark, kind
    return chunks


def _joined(sentences: Sequence[Tags]) -> list[str]:
    """Return all tags as one sequence, with an `O` after each sentence."""
    return [tag for tags in sentences for tag in (*tags, "O")]


def _ends(before: str, mark: str) -> bool:
    return before in "ES" or (before in "BI" and mark in "BSO")


def _begins(before: str, mark: str) -> bool:
    return mark in "BS" or (before in "ESO" and mark in "EI")
