"""Connected paragraphs about one entity: its facts, in an order that reads well."""

import random
from functools import cache

from ptrun.pocket.cast import Cast
from ptrun.pocket.entity import Entity
from ptrun.pocket.facts import Fact
from ptrun.pocket.lexicon import table
from ptrun.pocket.phrase import Manner, state
from ptrun.pocket.world import world

LONGEST = 7  # sentences
PRONOUN_SHARE = 0.6
CHAIN = 5  # sentences
STYLES = ("full", "full", "short")


def profile(rng: random.Random) -> list[str]:
    """Return sentences about an entity: its full name first, then pronouns and short names."""
    entity, cast = rng.choice(topics()), Cast(rng)
    return [
        state(cast.play(fact), _manner(fact, entity, i == 0, rng), rng).text
        for i, fact in enumerate(_chosen(entity, rng))
    ]


def chain(rng: random.Random) -> list[str]:
    """Return sentences that walk from entity to entity: each shares one with the one before."""
    entity, last, cast = rng.choice(topics()), None, Cast(rng)
    sentences: list[str] = []
    for _ in range(CHAIN):
        facts = [fact for fact in facts_about(entity) if fact is not last]
        if not facts:
            break
        last = rng.choice(facts)
        manner = Manner(subject=rng.choice(STYLES), object=rng.choice(STYLES))
        sentences.append(state(cast.play(last), manner, rng).text)
        entity = rng.choice(last.entities)
    return sentences


@cache
def topics() -> tuple[Entity, ...]:
    """Return the entities that the corpus writes about."""
    return tuple(e for e in world().entities() if not e.hidden and facts_about(e))


def facts_about(entity: Entity) -> list[Fact]:
    """Return the facts about an entity that the corpus may state."""
    return [f for f in world().about.get(entity.id, ()) if not f.hidden]


def _chosen(entity: Entity, rng: random.Random) -> list[Fact]:
    order = table("world")["order"][entity.kind].split()
    facts = facts_about(entity)
    picked = rng.sample(facts, min(len(facts), rng.randint(3, LONGEST)))
    return sorted(picked, key=lambda fact: order.index(fact.relation))


def _manner(fact: Fact, topic: Entity, first: bool, rng: random.Random) -> Manner:
    style = "full" if first else "pronoun" if rng.random() < PRONOUN_SHARE else "short"
    other = "full" if rng.random() < 0.75 else "short"
    if fact.subject is topic:
        return Manner(subject=style, object=other)
    return Manner(subject=other, object="full" if style == "pronoun" else style)
