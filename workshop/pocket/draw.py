"""Random draws for the rows of a task: entities, facts and sentences of one split.

Training rows use open entities and open paraphrases only; the other splits mix in reserved ones. A
group holds relations between the same kinds of entities: only their words tell them apart.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from ptrun.pocket.tasks import SPLITS, Row
from workshop.pocket.corpus import Manner, state
from workshop.pocket.world import Entity, Fact, Text, detailed, world

SIZES = (3000, 400, 600)
RESERVED = {"train": 0.0, "validation": 0.7, "test": 0.7}  # share of reserved entities
HELD_OUT = {"train": 0.0, "validation": 0.1, "test": 0.1}  # share of held-out paraphrases
OBJECT, SUBJECT = "object", "subject"
_HEADS = {"founded": SUBJECT, "owns": SUBJECT, "manages": SUBJECT}


class Draw:
    """Random choices for one split; `turn` counts the rows made so far, for balanced labels."""

    def __init__(self, task: str, split: str) -> None:
        """Start the random sequence of the split."""
        self.rng = random.Random(f"pocket {task} {split} 1")
        self.split = split
        self.turn = 0

    def held(self) -> bool:
        """Return whether the next wording is a held-out one."""
        return self.rng.random() < HELD_OUT[self.split]

    def entity(self, kind: str, *but: Entity) -> Entity:
        """Return an entity of a kind that shares no name with those in `but`."""
        taken = set().union(*map(_names, but))
        while True:
            reserved = self.rng.random() < RESERVED[self.split]
            chosen = self.rng.choice(_pool(kind, reserved))
            if not _names(chosen) & taken:
                return chosen

    def entities(self, kind: str, count: int, *but: Entity) -> list[Entity]:
        """Return entities of a kind that share no name with each other or with those in `but`."""
        drawn: list[Entity] = []
        while len(drawn) < count:
            drawn.append(self.entity(kind, *but, *drawn))
        return drawn

    def fact(self, relation: str, subject: Entity, target: Entity | str) -> Fact:
        """Return a fact that holds in the row, whether or not it holds in the world."""
        return detailed(relation, subject, target, self.rng)

    def sentence(self, fact: Fact, subject: str = "full") -> Text:
        """Return a sentence that states a fact; `subject` is full, short or pronoun."""
        return state(fact, Manner(self.held(), subject), self.rng)

    def bare_sentence(self, fact: Fact) -> str:
        """Return a sentence that states a fact without a year, a manner or another detail."""
        while True:
            text = self.sentence(fact)
            if all(span.role in ("s", "o", "predicate") for span in text.spans):
                return text.text


@cache
def _pool(kind: str, reserved: bool) -> tuple[Entity, ...]:
    return tuple(e for e in world().by_kind[kind] if e.reserved == reserved)


def _names(entity: Entity) -> set[str]:
    return {entity.name, *entity.short, entity.given or entity.name}


@cache
def splits(
    task: str,
    make: Callable[[Draw], list[Row]],
    fields: tuple[str, ...],
    sizes: tuple[int, ...] = SIZES,
    shuffled: bool = True,
) -> dict[str, list[Row]]:
    """Return the rows of all splits; a value of one of the `fields` occurs once in the whole task.

    `make` returns the rows of one text. They are shuffled because `make` may depend on the turn.
    """
    seen: set[str] = set()
    rows = {}
    for split, size in zip(SPLITS, sizes, strict=True):
        draw = Draw(task, split)
        drawn: list[Row] = []
        while len(drawn) < size:
            draw.turn = len(drawn)
            more = make(draw)
            texts = {str(more[0][field]) for field in fields}
            if not texts & seen:
                seen |= texts
                drawn += more
        del drawn[size:]
        if shuffled:
            draw.rng.shuffle(drawn)
        rows[split] = [{"id": f"{split}-{i}", **row} for i, row in enumerate(drawn)]
    return rows


@dataclass(frozen=True)
class Group:
    """Relations between a person and an entity of one `kind`.

    `unique` maps a relation to the end that can be filled only once: a person is born in one town,
    a firm has one founder. The relations in `others` may hold any number of times.
    """

    kind: str
    unique: dict[str, str]
    others: tuple[str, ...]

    @property
    def relations(self) -> tuple[str, ...]:
        """All relations of the group."""
        return (*self.unique, *self.others)

    def besides(self, relation: str) -> list[str]:
        """Return the other relations of the group."""
        return [name for name in self.relations if name != relation]


GROUPS = (
    Group("town", {"born_in": OBJECT, "lives_in": OBJECT}, ("visited",)),
    Group("firm", _HEADS, ("works_for",)),
    Group("paper", _HEADS, ("works_for",)),
    Group("club", _HEADS, ("plays_for",)),
    Group("school", {"teaches_at": OBJECT, "manages": SUBJECT}, ("studied_at",)),
    Group("play", {"wrote": SUBJECT, "directed": SUBJECT}, ("acted_in", "reviewed")),
    Group("film", {"directed": SUBJECT}, ("acted_in", "reviewed")),
    Group("book", {"wrote": SUBJECT}, ("reviewed",)),
    Group("song", {"recorded": SUBJECT}, ("reviewed",)),
    Group("painting", {"painted": SUBJECT}, ("reviewed",)),
    Group("person", {"married_to": OBJECT}, ("friend_of",)),
)
