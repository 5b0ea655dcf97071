"""The entities of a document: those of the world, or strangers in their places.

Half of the documents are about strangers. A model cannot know these in advance, so it has to read
the sentence to learn what a name means.
"""

import random
from dataclasses import replace
from functools import cache

from ptrun.pocket.entity import Entity
from ptrun.pocket.facts import Fact
from ptrun.pocket.population import stranger
from ptrun.pocket.world import world

STRANGERS = 0.5
PLACES = ("town", "river", "region")


class Cast:
    """The entities of one document; a stranger replaces the same entity throughout."""

    def __init__(self, rng: random.Random) -> None:
        """Draw whether the document is about strangers."""
        self.rng = rng
        self.strange = rng.random() < STRANGERS
        self.strangers: dict[str, Entity] = {}

    def play(self, fact: Fact) -> Fact:
        """Return the fact as it holds in this document."""
        if not self.strange:
            return fact
        other = fact.object
        if isinstance(other, Entity):
            other = self._stranger(other)
        return replace(fact, subject=self._stranger(fact.subject), object=other)

    def _stranger(self, entity: Entity) -> Entity:
        if entity.id not in self.strangers:
            towns, names = _names()
            taken = set() if entity.kind in PLACES else names
            self.strangers[entity.id] = stranger(entity.kind, towns, taken, self.rng)
        return self.strangers[entity.id]


@cache
def _names() -> tuple[list[str], set[str]]:
    """Return the names of all towns, and the other names that no stranger may have."""
    towns = [town.name for town in world().by_kind["town"]]
    return towns, {e.name for e in world().entities() if e.kind not in PLACES}
