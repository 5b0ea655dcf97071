"""Multiple choice among four entities of one kind; all are in the article, three with one person.

The wrong options belong to the same person in another relation, or to another person in the same
relation.
"""

from ptrun.pocket.article import article, question
from ptrun.pocket.draw import Draw, Row
from ptrun.pocket.groups import GROUPS, Group

LETTERS = "ABCD"


def make(draw: Draw) -> list[Row]:
    """Return one row; each letter is the answer of a quarter of the rows."""
    group: Group = draw.rng.choice(GROUPS)
    relations = _relations(group, draw)
    person, other = draw.entities("person", 2)
    options = draw.entities(group.kind, 4, person, other)
    facts = [draw.fact(*ends) for ends in zip(relations, [person] * 3, options[:3], strict=True)]
    text = article([facts, [draw.fact(relations[0], other, options[3])]], draw)
    letter = draw.turn % len(LETTERS)
    row = {"article": text.text, "question": question(facts[0], "object", draw)}
    right, *wrong = [option.name for option in options]
    draw.rng.shuffle(wrong)
    placed = [*wrong[:letter], right, *wrong[letter:]]
    return [{**row, "options": placed, "answer": LETTERS[letter]}]


def _relations(group: Group, draw: Draw) -> list[str]:
    """Return the relation of the question and two others; only a free one may come twice."""
    while True:
        relation = draw.rng.choice(group.relations)
        others = group.besides(relation)
        if len(others) > 1:
            return [relation, *draw.rng.sample(others, 2)]
        if others[0] not in group.unique:
            return [relation, *others, *others]
