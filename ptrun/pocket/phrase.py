"""Sentences for facts: a paraphrase with its slots filled, and the spans of the arguments."""

import random
from dataclasses import dataclass

from ptrun.pocket.template import Filler, Slot, Text, render, table, words
from ptrun.pocket.world import Entity, Fact, mention, world

WORKS = ("book", "song", "film", "play", "painting")


@dataclass(frozen=True)
class Manner:
    """How a fact is worded.

    `held_out` is None for any paraphrase, False for those open to training rows, True for the
    others. `subject` and `object` are full, short or pronoun.
    """

    held_out: bool | None = None
    subject: str = "full"
    object: str = "full"


def state(fact: Fact, manner: Manner, rng: random.Random) -> Text:
    """Return a sentence that states the fact.

    Its spans have the roles s, o, predicate, or the name of a word class such as past.
    """
    template = rng.choice(paraphrases(fact.relation, manner.held_out))

    def fill(slot: Slot) -> Filler | str:
        if slot.role in ("s", "o"):
            entity = fact.subject if slot.role == "s" else fact.object
            style = manner.subject if slot.role == "s" else manner.object
            if isinstance(entity, Entity):
                return mention(entity, slot.form, style, rng)
            return entity.capitalize() if slot.form == "cap" else entity
        if slot.role == "other_work":
            return mention(_other_work(fact, rng), "name", "full", rng)
        return word(slot, rng, fact.details)

    return render(template, fill, rng)


def paraphrases(relation: str, held_out: bool | None) -> list[str]:
    """Return the templates of a relation: all, or only the open or held-out ones."""
    entry: dict[str, list[str]] = table("relations")[relation]
    if held_out is None:
        return entry["templates"] + entry["held_out"]
    return entry["held_out"] if held_out else entry["templates"]


def word(slot: Slot, rng: random.Random, fixed: dict[str, str] | None = None) -> str:
    """Return words of the class that a slot names; `fixed` has the words of decided classes."""
    if fixed and slot.role in fixed:
        chosen = fixed[slot.role]
    elif slot.role == "year":
        chosen = str(rng.randrange(1920, 2000))
    else:
        chosen = rng.choice(words("lexicon", slot.role))
    if "{" in chosen or "[" in chosen:
        chosen = render(chosen, lambda inner: word(inner, rng, fixed), rng, capital=False).text
    return chosen[:1].upper() + chosen[1:] if slot.form == "cap" else chosen


def _other_work(fact: Fact, rng: random.Random) -> Entity:
    """Return a work other than the fact's, reserved if the fact is."""
    group = world().by_kind[rng.choice(WORKS)]
    return rng.choice([w for w in group if w.reserved == fact.reserved and w is not fact.object])
