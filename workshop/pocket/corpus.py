"""The unlabelled corpus: documents as lists of connected sentences.

A document is a review, a profile (facts about one entity, in an order that reads well), a chain of
facts from entity to entity, or a small story. Half of the profiles and chains are about strangers:
a model cannot know these in advance, so it has to read the sentence to learn what a name means.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from workshop.pocket.world import (
    Entity,
    Fact,
    Filler,
    Slot,
    Text,
    items,
    mention,
    render,
    stranger,
    table,
    words,
    world,
)

# Opinions with a computed sign, and reviews made of them.
#
# A predicate has a sign; a frame keeps or flips it; of two contrasted clauses the main one decides.
# The words of `*_held` lists are drawn with probability `held`, 0 in training rows. A review is a
# few opinions of one sign, then a verdict or a consequence.

SIGNS = {1: "good", -1: "bad"}
KEPT = 0.7
SHARES = (54, 23, 8, 15)
COMBINATION_HELD_EVERY = 6  # every sixth (aspect, adjective) pair is held out
HELD = 0.2  # the corpus knows all words and frames
PLAIN = 0.4  # share of plain writers; without them a model does not learn negation


@dataclass(frozen=True)
class Clause:
    """One judgement of one aspect: the frame's polarity times the predicate's sign."""

    text: str
    predicate_sign: int
    polarity: int
    aspect: str

    @property
    def value(self) -> int:
        """The sign of the clause, 1 or -1."""
        return self.predicate_sign * self.polarity


@dataclass(frozen=True)
class Opinion:
    """One or two clauses in a sentence about a thing; `main` decides."""

    text: str
    thing: str
    main: Clause
    other: Clause | None = None

    @property
    def value(self) -> int:
        """The sign of the sentence, 1 or -1."""
        return self.main.value


@dataclass(frozen=True)
class Speaker:
    """Draws opinions about one thing.

    `held` is the chance of drawing from a held-out list. `kept` is the share of frames that keep
    the sign of their predicate. `shares` weighs the forms of an opinion (one clause, contrast,
    despite, two agreeing clauses). A `plain` speaker uses no negation and no contrast.
    """

    thing: str
    rng: random.Random
    held: float = 0.0
    plain: bool = False
    kept: float = KEPT
    shares: tuple[int, int, int, int] = SHARES

    def opinion(self, sign: int) -> Opinion:
        """Return an opinion of the given sign, in one or two clauses."""
        shares = (80, 0, 0, 20) if self.plain else self.shares
        kind = self.rng.choices(("one", "contrast", "despite", "both"), shares)[0]
        main = self._clause(sign, "")
        if kind == "one":
            return self._sentence("{y}", main)
        if kind == "despite":
            return self._despite(main)
        other = self._clause(sign if kind == "both" else -sign, main.aspect)
        group = table("opinions")["agreement" if kind == "both" else "contrast"]
        frame = self._pick(group, "frames")
        return self._sentence(frame, main, other)

    def _despite(self, main: Clause) -> Opinion:
        aspect = self._aspect(main.aspect)
        adjective = self._adjective(aspect, -main.value)
        other = Clause(f"the {adjective} {aspect}", -main.value, 1, aspect)
        frame = self._pick(table("opinions")["contrast"], "despite")
        return self._sentence(frame, main, other)

    def _sentence(self, frame: str, main: Clause, other: Clause | None = None) -> Opinion:
        text = frame.replace("{x}", other.text if other else "").replace("{y}", main.text)
        lead = self._fill(self.rng.choice(table("opinions")["leads"]["all"]))
        return Opinion(_capitals(f"{lead}{text}."), self.thing, main, other)

    def _clause(self, sign: int, other_than: str) -> Clause:
        aspect = self._aspect(other_than)
        maker = self.rng.choices((self._judged, self._felt, self._quality), (76, 13, 11))[0]
        return maker(sign, aspect)

    def _judged(self, sign: int, aspect: str) -> Clause:
        polarity, frame = self._frame("frames")
        of_predicate = sign * polarity
        words = {"p": self._predicate(aspect, of_predicate)}
        if "{m}" in frame or "{n}" in frame:
            words["m"] = self._adjective(aspect, of_predicate)
            words["n"] = self._adjective(aspect, -of_predicate)
        return self._filled(frame, aspect, of_predicate, polarity, words)

    def _felt(self, sign: int, aspect: str) -> Clause:
        polarity, frame = self._frame("verb_frames")
        past, base = self._signed("verbs", sign * polarity).split(":")
        return self._filled(frame, aspect, sign * polarity, polarity, {"v": past, "b": base})

    def _quality(self, sign: int, aspect: str) -> Clause:
        polarity, frame = self._frame("quality_frames")
        quality = self._signed("qualities", sign * polarity)
        return self._filled(frame, aspect, sign * polarity, polarity, {"q": quality})

    def _filled(
        self, frame: str, aspect: str, sign: int, polarity: int, words: dict[str, str]
    ) -> Clause:
        text = self._fill(frame, words | {"a": f"the {aspect}"})
        return Clause(text, sign, polarity, aspect)

    def _frame(self, name: str) -> tuple[int, str]:
        polarity = 1 if self.plain or self.rng.random() < self.kept else -1
        return polarity, self._pick(table("opinions")[name], "keep" if polarity > 0 else "flip")

    def _predicate(self, aspect: str, sign: int) -> str:
        kind = self.rng.choices(("one", "two", "nouns", "comparisons"), (60, 20, 10, 10))[0]
        if kind == "two":
            pair = self._adjective(aspect, sign), self._adjective(aspect, sign)
            return " and ".join(dict.fromkeys(pair))
        return self._adjective(aspect, sign) if kind == "one" else self._signed(kind, sign)

    def _adjective(self, aspect: str, sign: int) -> str:
        if aspect == self.thing or self.rng.random() < 0.45:
            return self._signed("adjectives", sign)
        opened, held = fitting(self.thing, aspect, sign)
        return self.rng.choice(held if held and self._unseen() else opened)

    def _signed(self, name: str, sign: int) -> str:
        return self.rng.choice(items(self._pick(table("opinions")[name], SIGNS[sign])))

    def _aspect(self, other_than: str) -> str:
        aspects: dict[str, Any] = table("opinions")["things"][self.thing]
        return self.rng.choice([a for a in (*aspects, self.thing) if a != other_than])

    def _pick(self, group: dict[str, Any], key: str) -> str:
        chosen = group[f"{key}_held"] if self._unseen() else group[key]
        return chosen if isinstance(chosen, str) else self.rng.choice(chosen)

    def _unseen(self) -> bool:
        return self.rng.random() < self.held

    def _fill(self, template: str, words: dict[str, str] | None = None) -> str:
        fixed = {"thing_name": self.thing} | (words or {})

        def fill(slot: Slot) -> str:
            return fixed[slot.role] if slot.role in fixed else word(slot, self.rng)

        return render(template, fill, self.rng, capital=False).text


@cache
def fitting(thing: str, aspect: str, sign: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the open and the held-out adjectives that are good (1) or bad (-1) of an aspect."""
    every = items(table("opinions")["things"][thing][aspect][0 if sign > 0 else 1])
    number = list(table("opinions")["things"]).index(thing) + len(aspect)
    held = tuple(a for i, a in enumerate(every) if i and (number + i) % COMBINATION_HELD_EVERY == 0)
    return tuple(a for a in every if a not in held), held


def _capitals(text: str) -> str:
    """Return text with a capital at its start and after each full stop."""
    return ". ".join(part[:1].upper() + part[1:] for part in text.split(". "))


def things() -> tuple[str, ...]:
    """Return everything that can be reviewed."""
    return tuple(table("opinions")["things"])


def review(rng: random.Random) -> list[str]:
    """Return the sentences of a review.

    Most reviews are one opinion and one verdict. A single word of the verdict carries the sign, so
    neither can be guessed without the other.
    """
    thing = rng.choice(things())
    sign = rng.choice((1, -1))
    speaker = Speaker(thing, rng, HELD, plain=rng.random() < PLAIN)
    count, ends = rng.choices(((1, 1), (1, 2), (1, 3), (2, 2)), (45, 25, 15, 15))[0]
    opinions = [speaker.opinion(sign).text for _ in range(count)]
    endings = [_ending(thing, sign, rng) for _ in range(ends)]
    return opinions + endings


def _ending(thing: str, sign: int, rng: random.Random) -> str:
    if rng.random() < 0.3:
        return _filled(rng.choice(table("opinions")["consequences"][SIGNS[sign]]), thing, (), rng)
    return verdict(thing, sign, rng)


def verdict(thing: str, sign: int, rng: random.Random) -> str:
    """Return a sentence whose one polar word says whether the writer liked the thing."""
    verdicts = table("opinions")["verdicts"]
    number = rng.randrange(len(verdicts["pairs"]))
    polar = items(verdicts["pairs"][number][0 if sign > 0 else 1] + ";")
    return _filled(rng.choice(verdicts["templates"][number]), thing, polar, rng)


def _filled(template: str, thing: str, polar: tuple[str, ...], rng: random.Random) -> str:
    fixed = {"thing_name": thing}
    fixed |= dict(zip("vw", rng.sample(polar, min(2, len(polar))), strict=False))

    def fill(slot: Slot) -> str:
        chosen = fixed[slot.role] if slot.role in fixed else word(slot, rng)
        if slot.form == "a":
            return ("an " if chosen[0] in "aeiou" else "a ") + chosen
        return chosen

    return render(template, fill, rng).text


# Sentences for facts: a paraphrase with its slots filled, and the spans of the arguments.

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
