"""Small stories: a schema of sentences about a person, a friend and a town."""

import random

from ptrun.pocket.entity import Entity, mention
from ptrun.pocket.lexicon import table
from ptrun.pocket.phrase import word
from ptrun.pocket.template import Filler, Slot, render
from ptrun.pocket.world import world

PRONOUN_SHARE = 0.6


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
