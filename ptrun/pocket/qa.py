"""Questions answered by one span of a context, or by nothing: every fourth has no answer in it.

A context speaks of two people in the same relations. A question without an answer asks of one what
is only said of the other.
"""

from ptrun.pocket.article import article, question
from ptrun.pocket.draw import Draw, Row, splits
from ptrun.pocket.facts import Fact
from ptrun.pocket.groups import GROUPS, SUBJECT, Group, people, things

UNANSWERABLE_EVERY = 4


def rows(split: str) -> list[Row]:
    """Return the rows of a split: three quarters with one answer, one quarter with none."""
    return splits("qa", _make, ("context",))[split]


def _make(draw: Draw) -> list[Row]:
    group: Group = draw.rng.choice(GROUPS)
    relation = draw.rng.choice(list(group.unique))
    person, other = people(2, draw)
    mine, theirs, third = things(group.kind, 3, draw, person, other)
    asked, rival = draw.fact(relation, person, mine), draw.fact(relation, other, theirs)
    decoy = draw.fact(draw.rng.choice(group.besides(relation)), person, third)
    answerable = draw.turn % UNANSWERABLE_EVERY > 0
    wanted = draw.rng.choice(("subject", "object", "object"))
    if not answerable and wanted == SUBJECT:
        decoy = draw.fact(decoy.relation, person, mine)
    blocks = [[decoy, *_more(group, decoy, draw)], [rival, *_more(group, rival, draw, most=1)]]
    if answerable:
        blocks[0].append(asked)
    text = article(blocks, draw)
    spans = [text.named(asked, wanted[0])] if answerable else []
    row = {"title": person.name, "context": text.text, "question": question(asked, wanted, draw)}
    return [{**row, "answers": text.answer(*spans)}]


def _more(group: Group, fact: Fact, draw: Draw, most: int = 2) -> list[Fact]:
    """Return facts about the same person in other groups of relations."""
    count = draw.rng.randint(0 if most == 1 else 1, most)
    groups = draw.rng.sample([g for g in GROUPS if not {*g.relations} & {*group.relations}], count)
    subject = fact.subject
    return [
        draw.fact(draw.rng.choice(g.relations), subject, draw.value(g.kind, *fact.entities))
        for g in groups
    ]
