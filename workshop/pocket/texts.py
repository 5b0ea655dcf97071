"""Rows of labelled texts: sentiment, topics, and several topics; and of facts with sentences.

A sentiment row is one opinion, labelled with its computed sign; half of each label. A topic row is
a sentence or two on one of 14 fields; the first one decides. The second one of every eighth row is
about another field, so counting words is not enough. A row of several topics has a sentence for
each of up to two fields, or an opinion about neither. A fact is `subject, relation, object`, with
up to three sentences for it.
"""

from functools import cache

from ptrun.pocket.tasks import Row
from workshop.pocket.corpus import Speaker, things
from workshop.pocket.draw import GROUPS, RESERVED, Draw
from workshop.pocket.world import Entity, Fact, table, world

SIZES = (2000, 400, 800)
KEPT = 0.8  # every fifth predicate is negated, so the signs of words alone are not enough
SHARES = (66, 16, 6, 12)
HELD = {"train": 0.0, "validation": 0.2, "test": 0.2}  # chance of each held-out choice
LABELS = {1: "positive", -1: "negative"}
WANDERS = 0.125
SENTENCES = 3  # of a fact; equal ones count once
ALONE = 0.45  # share of rows of one sentence
SEVERAL = 8  # fields of rows that may have several
COUNTS = (15, 40, 45)  # weights of rows with no field, one, and two


def sentiment(draw: Draw) -> list[Row]:
    """Return one row; the labels alternate."""
    thing, held = draw.rng.choice(things()), HELD[draw.split]
    speaker = Speaker(thing, draw.rng, held, kept=KEPT, shares=SHARES)
    opinion = speaker.opinion(1 if draw.turn % 2 else -1)
    return [{"sentence": opinion.text, "label": LABELS[opinion.value]}]


def labels() -> list[str]:
    """Return the names of the fields."""
    return list(table("topics"))


def topics(draw: Draw) -> list[Row]:
    """Return one row; the 14 labels take turns."""
    label = labels()[draw.turn % len(labels())]
    text = draw.sentence(_fact(label, draw)).text
    chance = draw.rng.random()
    if chance >= ALONE:
        wanders = chance >= 1 - WANDERS
        other = draw.rng.choice([x for x in labels() if x != label]) if wanders else label
        text += " " + draw.sentence(_fact(other, draw)).text
    return [{"text": text, "label": label}]


def several(draw: Draw) -> list[Row]:
    """Return one row with two topics, one, or none."""
    own = draw.rng.sample(labels()[:SEVERAL], draw.rng.choices((0, 1, 2), weights=COUNTS)[0])
    texts = [draw.sentence(_fact(label, draw)).text for label in own]
    if len(texts) < 2:
        thing, held = draw.rng.choice(things()), HELD[draw.split]
        sign = draw.rng.choice((1, -1))
        texts.append(Speaker(thing, draw.rng, held, kept=KEPT, shares=SHARES).opinion(sign).text)
    return [{"text": " ".join(texts), "topics": [x for x in labels() if x in own]}]


def _fact(label: str, draw: Draw) -> Fact:
    relation = draw.rng.choice(table("topics")[label].split())
    return draw.rng.choice(_facts(relation, label, draw.rng.random() < RESERVED[draw.split]))


def writing(draw: Draw) -> list[Row]:
    """Return one row."""
    group = draw.rng.choice(GROUPS)
    relation = draw.rng.choice(group.relations)
    who = draw.entity("person")
    what = draw.entity(group.kind, who)
    fact = draw.fact(relation, who, what)
    sentences = dict.fromkeys(draw.bare_sentence(fact) for _ in range(SENTENCES))
    shown = f"{who.name}, {relation.replace('_', ' ')}, {what.name}"
    return [{"facts": shown, "sentences": list(sentences)}]


@cache
def _facts(relation: str, label: str, reserved: bool) -> list[Fact]:
    """Return the facts of a relation that belong to a field: a play is no book and no film."""
    return [
        fact
        for fact in world().facts
        if fact.relation == relation and fact.reserved == reserved and _fits(fact, label)
    ]


def _fits(fact: Fact, label: str) -> bool:
    kind = fact.object.kind if isinstance(fact.object, Entity) else ""
    return label not in ("book", "film") or kind == label
