"""Who plays in a document: the known entities of the world, or strangers in their places.

Half of the documents speak of strangers. Nothing can be known about those beforehand, so what a
name means there has to be read from the sentence around it.
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
    """The entities of one document; a stranger keeps the part of one known entity throughout."""

    def __init__(self, rng: random.Random) -> None:
        """Decide by chance whether strangers play."""
        self.rng = rng
        self.strange = rng.random() < STRANGERS
        self.players: dict[str, Entity] = {}

    def play(self, fact: Fact) -> Fact:
        """Return the fact as it holds in this document."""
        if not self.strange:
            return fact
        other = fact.object
        if isinstance(other, Entity):
            other = self._player(other)
        return replace(fact, subject=self._player(fact.subject), object=other)

    def _player(self, part: Entity) -> Entity:
        if part.id not in self.players:
            towns, taken = _names()
            free = set() if part.kind in PLACES else taken
            self.players[part.id] = stranger(part.kind, towns, free, self.rng)
        return self.players[part.id]


@cache
def _names() -> tuple[list[str], set[str]]:
    """Return the names of all towns, and of everything else, which no stranger may bear."""
    towns = [town.name for town in world().by_kind["town"]]
    return towns, {e.name for e in world().entities() if e.kind not in PLACES}
