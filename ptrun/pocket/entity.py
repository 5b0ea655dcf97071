"""Entities of the pocket world and the ways a sentence mentions them."""

import random
from dataclasses import dataclass, replace

from ptrun.pocket.template import Filler

KINDS = {
    "PER": ("person",),
    "LOC": ("town", "region", "river"),
    "ORG": ("firm", "paper", "school", "club"),
    "WORK": ("book", "song", "film", "play", "painting"),
}
TAG_OF_KIND = {kind: tag for tag, kinds in KINDS.items() for kind in kinds}
KIND_WORD = {"book": "novel", "painting": "picture"}
PRONOUNS = {"f": ("she", "her", "her"), "m": ("he", "him", "his"), "n": ("it", "it", "its")}
FAMILY_WORD = {"f": ("daughter", "mother"), "m": ("son", "father"), "n": ("child", "parent")}
TITLES = {"f": ("Mrs", "Miss", "Doctor", "Judge"), "m": ("Mr", "Captain", "Doctor", "Professor")}


@dataclass(frozen=True)
class Entity:
    """A person, a place, an organisation or a work.

    `short` holds short names (a family name, a club's town). `article` is written before the name
    and is no part of it. `gender` is f, m or n; `given` is a person's first name. `reserved`
    entities stay out of the training rows of the tasks, `hidden` ones out of the corpus.
    """

    id: str
    kind: str
    name: str
    short: tuple[str, ...] = ()
    article: str = ""
    gender: str = "n"
    given: str = ""
    reserved: bool = False
    hidden: bool = False


def mention(entity: Entity, form: str, style: str, rng: random.Random) -> Filler:
    """Return the words for an entity in a grammatical form.

    `style` is full, short or pronoun; the forms name and given never give a pronoun, and the
    forms he, him, his always do. The forms kind, child and parent give a common noun.
    """
    subject, object_, possessive = PRONOUNS[entity.gender]
    always = {"he": subject, "him": object_, "his": possessive}
    if form in always:
        return Filler(always[form], entity.id, named=False)
    if form in ("kind", "child", "parent"):
        return Filler(_common_noun(entity, form), named=False)
    if form == "given":
        return Filler(entity.given, entity.id)
    if style == "pronoun" and form != "name":
        words = {"obj": object_, "gen": possessive}.get(form, subject)
        return Filler(words, entity.id, named=False)
    return _named(entity, form, style, rng)


def _named(entity: Entity, form: str, style: str, rng: random.Random) -> Filler:
    if form == "gen":
        named = _named(entity, "name", style, rng)
        return replace(named, after="'" if named.text.endswith("s") else "'s")
    if style == "full" or not entity.short:
        return Filler(entity.name, entity.id, entity.article)
    before = ""
    if entity.kind == "person" and rng.random() < 0.3:
        before = rng.choice(TITLES[entity.gender]) + " "
    return Filler(rng.choice(entity.short), entity.id, before)


def _common_noun(entity: Entity, form: str) -> str:
    if form == "kind":
        return KIND_WORD.get(entity.kind, entity.kind)
    return FAMILY_WORD[entity.gender][form == "parent"]
