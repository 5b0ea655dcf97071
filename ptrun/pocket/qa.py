"""Questions with one answer span in the context; every fourth has none.

A context states the same relation of two people. An unanswerable question is about the fact of one
person that the context leaves out.
"""

from ptrun.pocket.article import article, question
from ptrun.pocket.draw import Draw, Row
from ptrun.pocket.facts import Fact
from ptrun.pocket.groups import GROUPS, SUBJECT, Group

UNANSWERABLE_EVERY = 4


def make(draw: Draw) -> list[Row]:
    """Return one row; three quarters have one answer, one quarter has none."""
    group: Group = draw.rng.choice(GROUPS)
    relation = draw.rng.choice(list(group.unique))
    person, other = draw.entities("person", 2)
    mine, theirs, third = draw.entities(group.kind, 3, person, other)
    fact, rival = draw.fact(relation, person, mine), draw.fact(relation, other, theirs)
    decoy = draw.fact(draw.rng.choice(group.besides(relation)), person, third)
    answerable = draw.turn % UNANSWERABLE_EVERY > 0
    wanted = draw.rng.choice(("subject", "object", "object"))
    if not answerable and wanted == SUBJECT:
        decoy = draw.fact(decoy.relation, person, mine)
    blocks = [[decoy, *_more(group, decoy, draw)], [rival, *_more(group, rival, draw, most=1)]]
    if answerable:
        blocks[0].append(fact)
    text = article(blocks, draw)
    spans = [text.named(fact, wanted[0])] if answerable else []
    row = {"title": person.name, "context": text.text, "question": question(fact, wanted, draw)}
    return [{**row, "answers": text.answer(*spans)}]


def _more(group: Group, fact: Fact, draw: Draw, most: int = 2) -> list[Fact]:
    """Return facts about the same person in other groups of relations."""
    count = draw.rng.randint(0 if most == 1 else 1, most)
    groups = draw.rng.sample([g for g in GROUPS if not {*g.relations} & {*group.relations}], count)
    return [
        draw.fact(draw.rng.choice(g.relations), fact.subject, draw.entity(g.kind, *fact.entities))
        for g in groups
    ]
