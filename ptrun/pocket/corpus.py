"""The unlabelled corpus: documents as lists of connected sentences.

A document is a review, a profile (facts about one entity, in an order that reads well), a chain of
facts from entity to entity, or a small story. Half of the profiles and chains are about strangers:
a model cannot know these in advance, so it has to read the sentence to learn what a name means.
"""

import random
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from ptrun.pocket.opinion import review
from ptrun.pocket.phrase import Manner, state, word
from ptrun.pocket.template import Filler, Slot, render, table
from ptrun.pocket.world import Entity, Fact, mention, stranger, world

STRANGERS = 0.5
PLACES = ("town", "river", "region")
LONGEST = 7  # sentences
PRONOUN_SHARE = 0.6
CHAIN = 5  # sentences
STYLES = ("full", "full", "short")
DOCUMENTS = {"train": 72_000, "validation": 1_500}


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


def story(rng: random.Random) -> list[str]:
    """Return the sentences of a story; a word class keeps its first word to the end."""
    cast = _cast(rng)
    kept: dict[str, str] = {}
    met: set[str] = set()

    def fill(slot: Slot) -> Filler | str:
        if slot.role in cast:
            return _mention(cast[slot.role], slot, met, rng)
        if slot.role not in kept:
            kept[slot.role] = word(slot, rng)
        return kept[slot.role]

    schema = table("stories")[rng.choice(list(table("stories")))]
    return [render(sentence, fill, rng).text for sentence in schema]


def _cast(rng: random.Random) -> dict[str, Entity]:
    """Return a person, the friend they have in the world, and the town where they live."""
    while True:
        person = rng.choice(world().by_kind["person"])
        about = world().about[person.id]
        friends = [f.object for f in about if f.relation == "friend_of" and f.subject is person]
        homes = [f.object for f in about if f.relation == "lives_in"]
        cast = {"s": person, "o": friends[0] if friends else person, "t": homes[0]}
        real = {role: e for role, e in cast.items() if isinstance(e, Entity) and not e.hidden}
        if friends and len(real) == len(cast):
            return real


def _mention(entity: Entity, slot: Slot, met: set[str], rng: random.Random) -> Filler:
    style = "full"
    if entity.id in met:
        style = "pronoun" if slot.role == "s" and rng.random() < PRONOUN_SHARE else "short"
    met.add(entity.id)
    return mention(entity, slot.form, style, rng)


KINDS = {review: 60, profile: 24, chain: 9, story: 7}  # a share of each


def documents(split: str) -> Iterator[list[str]]:
    """Yield the documents of a split; a document is its sentences in order, as plain text.

    Raises ValueError for a split other than train and validation.
    """
    if split not in DOCUMENTS:
        raise ValueError(f"split is {split!r}; allowed are {', '.join(DOCUMENTS)}")
    rng = random.Random(f"pocket corpus {split} 1")
    for _ in range(DOCUMENTS[split]):
        kind = rng.choices(list(KINDS), list(KINDS.values()))[0]
        yield kind(rng)
