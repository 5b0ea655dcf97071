"""Questions with one to four answers in the context, each a span of its own.

Either one person did something to several things, or several people to one thing. The context also
says that the same was done to something else, and that something else was done.
"""

from ptrun.pocket.article import article, question
from ptrun.pocket.draw import Draw, Row, splits
from ptrun.pocket.facts import Fact
from ptrun.pocket.groups import GROUPS, OBJECT, SUBJECT, Group, people, things

MOST = 4


def rows(split: str) -> list[Row]:
    """Return the rows of a split: a quarter with each number of answers."""
    return splits("multispan", _make, ("context",))[split]


def _make(draw: Draw) -> list[Row]:
    count = draw.turn % MOST + 1
    wanted = draw.rng.choice((SUBJECT, OBJECT))
    group, relation = draw.rng.choice(_open(wanted))
    asked, blocks = (_one_person if wanted == OBJECT else _one_thing)(group, relation, count, draw)
    text = article(blocks, draw)
    spans = [text.named(fact, wanted[0]) for fact in asked]
    row = {"context": text.text, "question": question(asked[0], wanted, draw)}
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
    person, other = people(2, draw)
    *found, different, theirs = things(group.kind, count + 2, draw, person, other)
    asked = [draw.fact(relation, person, thing) for thing in found]
    decoy = draw.fact(draw.rng.choice(group.besides(relation)), person, different)
    return asked, [[*asked, decoy], [draw.fact(relation, other, theirs)]]


def _one_thing(
    group: Group, relation: str, count: int, draw: Draw
) -> tuple[list[Fact], list[list[Fact]]]:
    *found, different, other = people(count + 2, draw)
    thing, theirs = things(group.kind, 2, draw, *found, different, other)
    asked = [draw.fact(relation, person, thing) for person in found]
    decoy = draw.fact(draw.rng.choice(group.besides(relation)), different, thing)
    return asked, [[fact] for fact in (*asked, decoy, draw.fact(relation, other, theirs))]
