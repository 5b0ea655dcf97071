"""Questions with one to four answers in the context, each a span of its own.

One person stands in a relation to several entities, or several people to one entity. The context
also states the same relation of others, and another relation of the same.
"""

from ptrun.pocket.article import article, question
from ptrun.pocket.draw import Draw, Row
from ptrun.pocket.facts import Fact
from ptrun.pocket.groups import GROUPS, OBJECT, SUBJECT, Group

MOST = 4


def make(draw: Draw) -> list[Row]:
    """Return one row; a quarter of the rows has each number of answers."""
    count = draw.turn % MOST + 1
    wanted = draw.rng.choice((SUBJECT, OBJECT))
    group, relation = draw.rng.choice(_open(wanted))
    facts, blocks = (_one_person if wanted == OBJECT else _one_thing)(group, relation, count, draw)
    text = article(blocks, draw)
    spans = [text.named(fact, wanted[0]) for fact in facts]
    row = {"context": text.text, "question": question(facts[0], wanted, draw)}
    title = blocks[0][0].subject.name
    return [{"title": title, **row, "answers": text.answer(*spans)}]


def _open(wanted: str) -> list[tuple[Group, str]]:
    """Return the relations whose wanted end may be filled several times."""
    return [
        (group, relation)
        for group in GROUPS
        if group.kind != "person" or wanted == OBJECT
        for relation in group.relations
        if group.unique.get(relation) != wanted
    ]


def _one_person(
    group: Group, relation: str, count: int, draw: Draw
) -> tuple[list[Fact], list[list[Fact]]]:
    person, other = draw.entities("person", 2)
    *things, different, theirs = draw.entities(group.kind, count + 2, person, other)
    facts = [draw.fact(relation, person, thing) for thing in things]
    decoy = draw.fact(draw.rng.choice(group.besides(relation)), person, different)
    return facts, [[*facts, decoy], [draw.fact(relation, other, theirs)]]


def _one_thing(
    group: Group, relation: str, count: int, draw: Draw
) -> tuple[list[Fact], list[list[Fact]]]:
    *people, different, other = draw.entities("person", count + 2)
    thing, theirs = draw.entities(group.kind, 2, *people, different, other)
    facts = [draw.fact(relation, person, thing) for person in people]
    decoy = draw.fact(draw.rng.choice(group.besides(relation)), different, thing)
    return facts, [[fact] for fact in (*facts, decoy, draw.fact(relation, other, theirs))]
