"""Chance for the rows of a task: entities, facts and wordings for a split; no row comes twice.

Training rows use open entities and open paraphrases only; the other splits mix in reserved ones.
"""

import random
from collections.abc import Callable
from functools import cache
from typing import Any

from ptrun.pocket.entity import Entity
from ptrun.pocket.facts import Fact, detailed
from ptrun.pocket.lexicon import table, words
from ptrun.pocket.phrase import Manner, state
from ptrun.pocket.template import Text
from ptrun.pocket.world import world

Row = dict[str, Any]

SIZES = {"train": 3000, "validation": 400, "test": 600}
RESERVED = {"train": 0.0, "validation": 0.7, "test": 0.7}  # share of reserved entities
HELD_OUT = {"train": 0.0, "validation": 0.1, "test": 0.1}  # share of held-out paraphrases


class Draw:
    """Random choices for one split; `turn` counts the rows made so far, for balanced labels."""

    def __init__(self, task: str, split: str) -> None:
        """Start the split's own sequence of random numbers."""
        self.rng = random.Random(f"pocket {task} {split} 1")
        self.split = split
        self.turn = 0

    def held(self) -> bool:
        """Decide whether the next wording is a held-out one."""
        return self.rng.random() < HELD_OUT[self.split]

    def value(self, kind: str, *but: Entity | str) -> Entity | str:
        """Return an entity (or a word) of a kind that shares no name with those in `but`."""
        taken = set().union(*map(_names, but))
        while True:
            reserved = self.rng.random() < RESERVED[self.split]
            chosen = self.rng.choice(_pool(kind, reserved))
            if not _names(chosen) & taken:
                return chosen

    def person(self, *but: Entity | str) -> Entity:
        """Return a person who shares no name with those in `but`."""
        found = self.value("person", *but)
        assert isinstance(found, Entity)
        return found

    def fact(self, relation: str, subject: Entity, target: Entity | str) -> Fact:
        """Return a fact of the row's own, true in the row whatever the world says."""
        return detailed(relation, subject, target, self.rng)

    def tell(self, fact: Fact, subject: str = "full") -> Text:
        """Return a sentence that states a fact; `subject` is full, short or pronoun."""
        return state(fact, Manner(self.held(), subject), self.rng)

    def bare(self, fact: Fact) -> str:
        """Return a sentence that states a fact and nothing else, neither year nor manner."""
        while True:
            text = self.tell(fact)
            if all(span.role in ("s", "o", "predicate") for span in text.spans):
                return text.text


@cache
def _pool(kind: str, reserved: bool) -> tuple[Entity | str, ...]:
    if kind not in world().by_kind:
        return words("lexicon", kind)
    return tuple(e for e in world().by_kind[kind] if e.reserved == reserved)


def _names(value: Entity | str) -> set[str]:
    if isinstance(value, str):
        return {value}
    return {value.name, *value.short, value.given or value.name}


def kind_of(relation: str, end: str) -> str:
    """Return the first kind of entity that may be a relation's `subject` or `object`."""
    kinds: str = table("relations")[relation][end]
    return kinds.split()[0]


@cache
def splits(
    task: str, make: Callable[[Draw], list[Row]], fields: tuple[str, ...]
) -> dict[str, list[Row]]:
    """Return the rows of all splits; the texts in `fields` occur once in the whole task.

    `make` gives the rows of one text; rows are shuffled, since `make` may go by the turn.
    """
    seen: set[str] = set()
    found = {name: _fill(Draw(task, name), make, fields, seen) for name in SIZES}
    return {
        name: [{"id": f"{name}-{i}", **row} for i, row in enumerate(rows)]
        for name, rows in found.items()
    }


def _fill(
    draw: Draw, make: Callable[[Draw], list[Row]], fields: tuple[str, ...], seen: set[str]
) -> list[Row]:
    found: list[Row] = []
    while len(found) < SIZES[draw.split]:
        draw.turn = len(found)
        made = make(draw)
        texts = {str(made[0][field]) for field in fields}
        if not texts & seen:
            seen |= texts
            found += made
    del found[SIZES[draw.split] :]
    draw.rng.shuffle(found)
    return found
