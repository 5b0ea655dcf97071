"""Rows of two texts: entailment, and similarity.

Entailment, neutral or contradiction is decided by the premise, which often names the subject and
the object of the hypothesis too, together or apart. So a model has to read which relation the
premise states of whom. Names and relations are spread over the labels alike. Similarity is 5 times
the share of facts of the first text that the second also states. Most facts that differ keep their
object or their relation, so common words are not enough.
"""

from ptrun.pocket.tasks import Row
from workshop.pocket.draw import GROUPS, OBJECT, Draw, Group
from workshop.pocket.world import Entity, Fact

LABELS = ("entailment", "neutral", "contradiction")
SINGLE = 0.55  # share of premises of one sentence
CHANGES = {"relation": 25, "object": 35, "matter": 40}  # weights of the change in a fact
COUNTS = (1, 2, 2, 3)  # facts in a sentence pair


def pairs(draw: Draw) -> list[Row]:
    """Return one row; the three labels take turns."""
    label = LABELS[draw.turn % len(LABELS)]
    claim, stated = Case(draw).facts(label)
    if draw.rng.random() < SINGLE:
        del stated[1]
    draw.rng.shuffle(stated)
    premise = " ".join(draw.sentence(fact).text for fact in stated)
    hypothesis = draw.bare_sentence(claim)
    if hypothesis in premise:
        return pairs(draw)
    return [{"premise": premise, "hypothesis": hypothesis, "label": label}]


class Case:
    """A hypothesis (s, relation, o), and another subject s2 and object o2 for the premise."""

    def __init__(self, draw: Draw) -> None:
        """Draw the relation and the entities."""
        self.draw = draw
        self.group: Group = draw.rng.choice(GROUPS)
        self.relation = draw.rng.choice(list(self.group.unique))
        self.by_object = self.group.unique[self.relation] == OBJECT
        self.s, self.s2 = draw.entities("person", 2)
        self.o, self.o2 = draw.entities(self.group.kind, 2, self.s, self.s2)

    def facts(self, label: str) -> tuple[Fact, list[Fact]]:
        """Return the fact of the hypothesis and two of the premise; the first decides the label."""
        make = {"entailment": self._same, "neutral": self._open, "contradiction": self._clash}
        return self._fact(self.relation, 1, 1), make[label]()

    def _fact(self, relation: str, s: int, o: int) -> Fact:
        subject = self.s if s == 1 else self.s2
        return self.draw.fact(relation, subject, self.o if o == 1 else self.o2)

    def _same(self) -> list[Fact]:
        if self.draw.rng.random() < 0.5:
            return [self._fact(self.relation, 1, 1), self._fact(self._other(), 1, 2)]
        return [self._fact(self.relation, 1, 1), self._fact(self._any(), 2, 2)]

    def _open(self) -> list[Fact]:
        if self.draw.rng.random() < 0.5:
            return [self._fact(self._other(), 1, 1), self._fact(self._any(), 2, 2)]
        named = self._fact(self._any() if self.by_object else self._other(), 2, 1)
        return [self._unrelated(), named]

    def _unrelated(self) -> Fact:
        """Return a fact about s from another group of relations."""
        mine = set(self.group.relations)
        group = self.draw.rng.choice([g for g in GROUPS if not mine & set(g.relations)])
        thing = self.draw.entity(group.kind, self.s, self.s2, self.o)
        return self.draw.fact(self.draw.rng.choice(group.relations), self.s, thing)

    def _clash(self) -> list[Fact]:
        """Return a fact that excludes the hypothesis: its unique end has one partner only."""
        ends, others = ((1, 2), (2, 1)) if self.by_object else ((2, 1), (1, 2))
        if self.draw.rng.random() < 0.5:
            return [self._fact(self.relation, *ends), self._fact(self._other(), 1, 1)]
        return [self._fact(self.relation, *ends), self._fact(self._any(), *others)]

    def _other(self) -> str:
        return self.draw.rng.choice(self.group.besides(self.relation))

    def _any(self) -> str:
        """Return any relation of the group; nobody marries twice, on neither side."""
        if self.relation == "married_to":
            return self._other()
        return self.draw.rng.choice(self.group.relations)


def similarity(draw: Draw) -> list[Row]:
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
        return similarity(draw)
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
