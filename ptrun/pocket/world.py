"""The pocket world: its entities and facts, the same in every process."""

import random
from collections import defaultdict
from dataclasses import dataclass
from functools import cache

from ptrun.pocket.entity import Entity
from ptrun.pocket.facts import Fact, facts
from ptrun.pocket.population import entities

SEED = "pocket world 1"


@dataclass(frozen=True)
class World:
    """All entities by kind, all facts, and the facts that each entity (by id) takes part in."""

    by_kind: dict[str, tuple[Entity, ...]]
    facts: tuple[Fact, ...]
    about: dict[str, tuple[Fact, ...]]

    def entities(self) -> tuple[Entity, ...]:
        """Return every entity, kind after kind."""
        return tuple(e for group in self.by_kind.values() for e in group)


@cache
def world() -> World:
    """Build the world, or return the one already built."""
    rng = random.Random(SEED)
    by_kind = entities(rng)
    drawn = tuple(facts(by_kind, rng))
    about: dict[str, list[Fact]] = defaultdict(list)
    for fact in drawn:
        for entity in fact.entities:
            about[entity.id].append(fact)
    return World(by_kind, drawn, {key: tuple(value) for key, value in about.items()})
