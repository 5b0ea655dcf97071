"""Fact probing in LAMA's form: facts that the corpus states, with the object hidden.

A row is a fact with an object of one word. Splits share no subject. Hidden entities are left out
because no backbone has read about them. A small backbone has to memorize some facts (a birthplace)
and can infer others from a name (a daughter or a son).
"""

import random
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from ptrun.pocket.tasks import Row
from workshop.pocket.corpus import WORKS
from workshop.pocket.world import FAMILY_WORD, KIND_WORD, Entity, table, world

TEMPLATES: dict[str, str] = table("probes")
ENDS = {"train": (0.0, 0.6), "validation": (0.6, 0.75), "test": (0.75, 1.0)}  # of the subjects


class Triple(NamedTuple):
    """A relation, a subject and the word for the object."""

    relation: str
    subject: Entity
    word: str


@cache
def splits() -> dict[str, list[Row]]:
    """Return the rows of all splits: facts about the subjects of each, relation after relation."""
    triples = _unambiguous()
    names = list(dict.fromkeys(triple.subject.name for triple in triples))
    random.Random("pocket facts subjects 1").shuffle(names)
    rows = {}
    for split, (start, end) in ENDS.items():
        subjects = set(names[round(start * len(names)) : round(end * len(names))])
        of_split = [_row(triple) for triple in triples if triple.subject.name in subjects]
        rows[split] = [{"id": f"{split}-{i}", **row} for i, row in enumerate(of_split)]
    return rows


def _row(triple: Triple) -> Row:
    return {
        "predicate_id": triple.relation,
        "sub_label": triple.subject.article + triple.subject.name,
        "obj_label": triple.word,
        "template": TEMPLATES[triple.relation],
    }


def _triples() -> Iterator[Triple]:
    """Yield the facts of the world, some of them several times."""
    for fact in world().facts:
        if fact.relation == "child_of" and not fact.hidden and isinstance(fact.object, Entity):
            yield Triple("child_of", fact.subject, FAMILY_WORD[fact.subject.gender][0])
            yield Triple("parent_of", fact.object, FAMILY_WORD[fact.object.gender][1])
        elif fact.relation in TEMPLATES and not fact.hidden:
            target = fact.object
            name = target.name if isinstance(target, Entity) else target
            yield Triple(fact.relation, fact.subject, name)
    for work in (w for kind in WORKS for w in world().by_kind[kind] if not w.hidden):
        yield Triple("kind", work, KIND_WORD.get(work.kind, work.kind))


def _unambiguous() -> list[Triple]:
    """Return the facts whose object is one word and the only one for the subject's name."""
    groups: dict[tuple[str, str], list[Triple]] = {}
    for triple in dict.fromkeys(_triples()):
        groups.setdefault((triple.relation, triple.subject.name), []).append(triple)
    order = list(TEMPLATES)
    single = [group[0] for group in groups.values() if len(group) == 1 and group[0].word.isalpha()]
    return sorted(single, key=lambda triple: order.index(triple.relation))
