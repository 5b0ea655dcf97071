"""Rows of questions about short articles: one answer or none, several answers, a choice of four.

- A context with one answer states the same relation of two people. An unanswerable question, every
  fourth, is about the fact of one person that the context leaves out.
- With several answers, one person stands in a relation to several entities, or several people to
  one entity. The context also states the same relation of others, and another relation of the same.
- A choice is among four entities of one kind; all are in the article, three with one person. The
  wrong options belong to the same person in another relation, or to another person in the same one.
"""

from dataclasses import dataclass

from ptrun.pocket.tasks import Row
from workshop.pocket.draw import GROUPS, OBJECT, SUBJECT, Draw, Group
from workshop.pocket.world import Entity, Fact, RoleSpan, Text, table

AGAIN = ("full", "short", "pronoun", "pronoun")  # styles of a subject that is named again
UNANSWERABLE_EVERY = 4
MOST = 4
LETTERS = "ABCD"


@dataclass(frozen=True)
class Article:
    """A text, the facts it states in order, and the spans of each fact's sentence."""

    text: str
    facts: tuple[Fact, ...]
    spans: tuple[tuple[RoleSpan, ...], ...]

    def named(self, fact: Fact, role: str) -> RoleSpan:
        """Return the span that names the subject (s) or object (o) of a fact.

        If the fact's sentence has only a pronoun, return the first mention in the article.
        """
        end = fact.subject if role == "s" else fact.object
        assert isinstance(end, Entity)
        in_sentence = self.spans[self.facts.index(fact)]
        every = [*in_sentence, *(span for sentence in self.spans for span in sentence)]
        return next(span for span in every if span.named and span.entity == end.id)

    def answer(self, *spans: RoleSpan) -> dict[str, list[str] | list[int]]:
        """Return spans as the answers of a question, in the order of the text."""
        order = sorted({(span.start, span.end) for span in spans})
        texts = [self.text[start:end] for start, end in order]
        return {"text": texts, "answer_start": [start for start, _ in order]}


def article(blocks: list[list[Fact]], draw: Draw) -> Article:
    """Write facts block by block; a block names a repeated subject in full only the first time."""
    out, spans = Text(), []
    blocks = [draw.rng.sample(block, len(block)) for block in blocks if block]
    for block in draw.rng.sample(blocks, len(blocks)):
        for last, fact in zip([None, *block], block, strict=False):
            same = last is not None and last.subject is fact.subject
            style = draw.rng.choice(AGAIN) if same else "full"
            before = len(out.spans)
            text = draw.sentence(fact, style)
            out = out.join(text) if out.text else text
            spans.append((fact, tuple(out.spans[before:])))
    facts, of_sentences = zip(*spans, strict=True)
    return Article(out.text, facts, of_sentences)


def question(fact: Fact, wanted: str, draw: Draw) -> str:
    """Return a question for the `subject` or the `object` of a fact."""
    wordings = table("questions")[fact.relation]
    wording: str = draw.rng.choice(wordings[f"{wanted}_held" if draw.held() else wanted])
    other, slot = (fact.object, "{o}") if wanted == "subject" else (fact.subject, "{s}")
    assert isinstance(other, Entity)
    text = wording.replace(slot, other.article + other.name)
    return text[:1].upper() + text[1:]


def qa(draw: Draw) -> list[Row]:
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


def multispan(draw: Draw) -> list[Row]:
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


def choice(draw: Draw) -> list[Row]:
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
