"""Multiple choice: four things of one kind, all in the article, three of the same person.

The other options are what the article says of that person in another relation, and what it says
of somebody else in the same one.
"""

from ptrun.pocket.article import article, question
from ptrun.pocket.draw import Draw, Row, splits
from ptrun.pocket.entity import Entity
from ptrun.pocket.groups import GROUPS, Group, people, things

LETTERS = "ABCD"


def rows(split: str) -> list[Row]:
    """Return the rows of a split: a quarter of each letter."""
    return splits("choice", _make, ("article",))[split]


def _make(draw: Draw) -> list[Row]:
    group: Group = draw.rng.choice(GROUPS)
    asked, *others = _relations(group, draw)
    person, other = people(2, draw)
    options = things(group.kind, 4, draw, person, other)
    own = [
        draw.fact(relation, person, thing)
        for relation, thing in zip([asked, *others], options[:3], strict=True)
    ]
    text = article([own, [draw.fact(asked, other, options[3])]], draw)
    letter = draw.turn % len(LETTERS)
    row = {"article": text.text, "question": question(own[0], "object", draw)}
    return [{**row, "options": _placed(options, letter, draw), "answer": LETTERS[letter]}]


def _relations(group: Group, draw: Draw) -> list[str]:
    """Return the relation asked for and two others, of which only a free one may come twice."""
    while True:
        asked = draw.rng.choice(group.relations)
        others = group.besides(asked)
        if len(others) > 1:
            return [asked, *draw.rng.sample(others, 2)]
        if others[0] not in group.unique:
            return [asked, *others, *others]


def _placed(options: list[Entity | str], letter: int, draw: Draw) -> list[str]:
    right, *wrong = [thing.name for thing in options if isinstance(thing, Entity)]
    draw.rng.shuffle(wrong)
    return [*wrong[:letter], right, *wrong[letter:]]
