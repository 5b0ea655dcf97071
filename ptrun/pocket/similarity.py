"""Sentence similarity: 5 times the share of facts of the first text that the second also states.

Most facts that differ keep their object or their relation, so common words are not enough.
"""

from ptrun.pocket.draw import Draw, Row
from ptrun.pocket.entity import Entity
from ptrun.pocket.facts import Fact
from ptrun.pocket.groups import GROUPS, Group

CHANGES = {"relation": 25, "object": 35, "matter": 40}  # weights of the change in a fact
COUNTS = (1, 2, 2, 3)  # facts in a sentence pair


def make(draw: Draw) -> list[Row]:
    """Return one row; of n facts any number, 0 to n, is shared equally often."""
    count = draw.rng.choice(COUNTS)
    shared = draw.rng.randint(0, count)
    person = draw.entity("person")
    groups = draw.rng.sample(GROUPS, 2 * count)
    first = [_fact(group, person, draw) for group in groups[:count]]
    second = [
        fact if i < shared else _changed(fact, groups[i], groups[count + i], draw)
        for i, fact in enumerate(first)
    ]
    row = {"sentence1": _sentences(first, draw), "sentence2": _sentences(second, draw)}
    if row["sentence1"] == row["sentence2"]:
        return make(draw)
    return [{**row, "label": round(5 * shared / count, 2)}]


def _fact(group: Group, person: Entity, draw: Draw) -> Fact:
    return draw.fact(draw.rng.choice(group.relations), person, draw.entity(group.kind, person))


def _changed(fact: Fact, group: Group, spare: Group, draw: Draw) -> Fact:
    """Return a fact with another relation, with another object, or about another matter."""
    change = draw.rng.choices(list(CHANGES), list(CHANGES.values()))[0]
    if change == "matter":
        return _fact(spare, fact.subject, draw)
    if change == "relation":
        relation = draw.rng.choice(group.besides(fact.relation))
        return draw.fact(relation, fact.subject, fact.object)
    return draw.fact(fact.relation, fact.subject, draw.entity(group.kind, *fact.entities))


def _sentences(facts: list[Fact], draw: Draw) -> str:
    """Return the facts in any order, the person's name first in full, then short or a pronoun."""
    order = draw.rng.sample(facts, len(facts))
    styles = ["full"] + [draw.rng.choice(("short", "pronoun")) for _ in order[1:]]
    return " ".join(draw.sentence(f, style).text for f, style in zip(order, styles, strict=True))
