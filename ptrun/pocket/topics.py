"""Topic rows: a sentence or two on one of 14 fields; the first sentence decides.

The second sentence of every eighth row wanders off to another field, about as often as a real
document does, so that counting words is not quite enough.
"""

from functools import cache

from ptrun.pocket.draw import RESERVED, Draw, Row, splits
from ptrun.pocket.entity import Entity
from ptrun.pocket.facts import Fact
from ptrun.pocket.lexicon import table
from ptrun.pocket.world import world

WANDERS = 0.125
ALONE = 0.45  # share of rows of one sentence


def rows(split: str) -> list[Row]:
    """Return the rows of a split: the 14 labels in equal numbers, give or take one."""
    return splits("topics", _make, ("text",))[split]


def labels() -> list[str]:
    """Return the names of the fields."""
    return list(table("topics"))


def _make(draw: Draw) -> list[Row]:
    label = labels()[draw.turn % len(labels())]
    text = draw.tell(_fact(label, draw)).text
    chance = draw.rng.random()
    if chance >= ALONE:
        wanders = chance >= 1 - WANDERS
        other = draw.rng.choice([x for x in labels() if x != label]) if wanders else label
        text += " " + draw.tell(_fact(other, draw)).text
    return [{"text": text, "label": label}]


def _fact(label: str, draw: Draw) -> Fact:
    relation = draw.rng.choice(table("topics")[label].split())
    return draw.rng.choice(_told(relation, label, draw.rng.random() < RESERVED[draw.split]))


@cache
def _told(relation: str, label: str, reserved: bool) -> list[Fact]:
    """Return the facts of a relation that belong to a field: a play is no book and no film."""
    return [
        fact
        for fact in world().facts
        if fact.relation == relation and fact.reserved == reserved and _fits(fact, label)
    ]


def _fits(fact: Fact, label: str) -> bool:
    kind = fact.object.kind if isinstance(fact.object, Entity) else ""
    return label not in ("book", "film") or kind == label
