"""Fact probing in LAMA's form: what the corpus told of the world, asked with the object hidden.

A row is a fact with an object of one word. Splits share no subject. Nothing is invented here, and
hidden entities are left out, since no backbone has read of them. Some facts a small backbone can
only know by heart (a birthplace), others it can read off a name (a daughter or a son).
"""

import random
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from ptrun.pocket.draw import Row
from ptrun.pocket.entity import FAMILY_WORD, KIND_WORD, Entity
from ptrun.pocket.phrase import WORKS
from ptrun.pocket.world import world

TEMPLATES = {
    "born_in": "[X] was born in [Y] .",
    "lives_in": "[X] lives in [Y] .",
    "has_job": "[X] works as a [Y] .",
    "plays_instrument": "[X] plays the [Y] .",
    "child_of": "[X] is the [Y] of a friend .",
    "parent_of": "[X] is the [Y] of a friend .",
    "located_in": "[X] lies in [Y] .",
    "near": "[X] is not far from [Y] .",
    "based_in": "[X] is based in [Y] .",
    "sells": "[X] sells [Y] .",
    "set_in": "[X] is set in [Y] .",
    "kind": "[X] is a sad [Y] .",
}
ENDS = {"train": (0.0, 0.6), "validation": (0.6, 0.75), "test": (0.75, 1.0)}  # of the subjects


class Known(NamedTuple):
    """A relation, a subject and the word for the object."""

    relation: str
    subject: Entity
    word: str


def rows(split: str) -> list[Row]:
    """Return the facts about the subjects of a split, relation after relation."""
    kept = set(_subjects()[split])
    facts = [known for known in _single() if known.subject.name in kept]
    return [{"id": f"{split}-{i}", **_row(known)} for i, known in enumerate(facts)]


def _row(known: Known) -> Row:
    return {
        "predicate_id": known.relation,
        "sub_label": known.subject.article + known.subject.name,
        "obj_label": known.word,
        "template": TEMPLATES[known.relation],
    }


def _every() -> Iterator[Known]:
    """Yield what the world holds, some of it several times."""
    for fact in world().facts:
        if fact.relation == "child_of" and not fact.hidden and isinstance(fact.object, Entity):
            yield Known("child_of", fact.subject, FAMILY_WORD[fact.subject.gender][0])
            yield Known("parent_of", fact.object, FAMILY_WORD[fact.object.gender][1])
        elif fact.relation in TEMPLATES and not fact.hidden:
            target = fact.object
            name = target.name if isinstance(target, Entity) else target
            yield Known(fact.relation, fact.subject, name)
    for work in (w for kind in WORKS for w in world().by_kind[kind] if not w.hidden):
        yield Known("kind", work, KIND_WORD.get(work.kind, work.kind))


@cache
def _single() -> list[Known]:
    """Return what has an object of one word and is the only such fact about its subject's name."""
    found: dict[tuple[str, str], list[Known]] = {}
    for known in dict.fromkeys(_every()):
        found.setdefault((known.relation, known.subject.name), []).append(known)
    order = list(TEMPLATES)
    single = [group[0] for group in found.values() if len(group) == 1 and group[0].word.isalpha()]
    return sorted(single, key=lambda known: order.index(known.relation))


@cache
def _subjects() -> dict[str, list[str]]:
    names = list(dict.fromkeys(known.subject.name for known in _single()))
    random.Random("pocket facts subjects 1").shuffle(names)
    size = len(names)
    return {name: names[round(a * size) : round(b * size)] for name, (a, b) in ENDS.items()}
