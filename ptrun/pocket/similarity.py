"""Similar sentences: 5 times the share of facts of the one that the other states too.

Most facts that are not shared keep either their object or their relation, so that common words
do not say it all.
"""

from ptrun.pocket.draw import Draw, Row, splits
from ptrun.pocket.entity import Entity
from ptrun.pocket.facts import Fact
from ptrun.pocket.groups import GROUPS, Group
from ptrun.pocket.template import Text

CHANGES = (25, 35, 40)  # weights of what is changed in a fact that is not shared
COUNTS = (1, 2, 2, 3)  # facts in a sentence pair


def rows(split: str) -> list[Row]:
    """Return the rows of a split; of n facts any number, 0 to n, is shared equally often."""
    return splits("similarity", _make, ("sentence1", "sentence2"))[split]


def _make(draw: Draw) -> list[Row]:
    count = draw.rng.choice(COUNTS)
    shared = draw.rng.randint(0, count)
    person = draw.person()
    groups = draw.rng.sample(GROUPS, 2 * count)
    first = [_fact(group, person, draw) for group in groups[:count]]
    second = [
        fact if i < shared else _changed(fact, groups[i], groups[count + i], draw)
        for i, fact in enumerate(first)
    ]
    row = {"sentence1": _said(first, draw), "sentence2": _said(second, draw)}
    if row["sentence1"] == row["sentence2"]:
        return _make(draw)
    return [{**row, "label": round(5 * shared / count, 2)}]


def _fact(group: Group, person: Entity, draw: Draw) -> Fact:
    return draw.fact(draw.rng.choice(group.relations), person, draw.value(group.kind, person))


def _changed(fact: Fact, group: Group, spare: Group, draw: Draw) -> Fact:
    """Return a fact with another relation, with another object, or about another matter."""
    kind = draw.rng.choices(("relation", "object", "matter"), CHANGES)[0]
    if kind == "matter":
        return _fact(spare, fact.subject, draw)
    if kind == "relation":
        relation = draw.rng.choice(group.besides(fact.relation))
        return draw.fact(relation, fact.subject, fact.object)
    other = draw.value(group.kind, fact.subject, fact.object)
    return draw.fact(fact.relation, fact.subject, other)


def _said(facts: list[Fact], draw: Draw) -> str:
    """Return the facts in any order, the person's name first in full, then short or a pronoun."""
    order = draw.rng.sample(facts, len(facts))
    styles = ["full"] + [draw.rng.choice(("short", "pronoun")) for _ in order[1:]]
    texts: list[Text] = [draw.tell(f, style) for f, style in zip(order, styles, strict=True)]
    return " ".join(text.text for text in texts)
