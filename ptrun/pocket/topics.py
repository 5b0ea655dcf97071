"""Topic rows: a sentence or two on one of 14 fields; the first sentence decides.

The second sentence of every eighth row is about another field, so counting words is not enough.
"""

from functools import cache

from ptrun.pocket.draw import RESERVED, Draw, Row
from ptrun.pocket.entity import Entity
from ptrun.pocket.facts import Fact
from ptrun.pocket.lexicon import table
from ptrun.pocket.world import world

WANDERS = 0.125
ALONE = 0.45  # share of rows of one sentence


def labels() -> list[str]:
    """Return the names of the fields."""
    return list(table("topics"))


def make(draw: Draw) -> list[Row]:
    """Return one row; the 14 labels take turns."""
    label = labels()[draw.turn % len(labels())]
    text = draw.sentence(_fact(label, draw)).text
    chance = draw.rng.random()
    if chance >= ALONE:
        wanders = chance >= 1 - WANDERS
        other = draw.rng.choice([x for x in labels() if x != label]) if wanders else label
        text += " " + draw.sentence(_fact(other, draw)).text
    return [{"text": text, "label": label}]


def _fact(label: str, draw: Draw) -> Fact:
    relation = draw.rng.choice(table("topics")[label].split())
    return draw.rng.choice(_facts(relation, label, draw.rng.random() < RESERVED[draw.split]))


@cache
def _facts(relation: str, label: str, reserved: bool) -> list[Fact]:
    """Return the facts of a relation that belong to a field: a play is no book and no film."""
    return [
        fact
        for fact in world().facts
        if fact.relation == relation and fact.reserved == reserved and _fits(fact, label)
    ]


def _fits(fact: Fact, label: str) -> bool:
    kind = fact.object.kind if isinstance(fact.object, Entity) else ""
    return label not in ("book", "film") or kind == label
