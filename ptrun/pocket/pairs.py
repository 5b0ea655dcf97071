"""Pairs of premise and hypothesis: entailment, neutral or contradiction, decided by the premise.

The premise often names the subject and the object of the hypothesis too, together or apart. So a
model has to read which relation the premise states of whom. Names and relations are spread over
the labels alike.
"""

from ptrun.pocket.draw import Draw, Row
from ptrun.pocket.facts import Fact
from ptrun.pocket.groups import GROUPS, OBJECT, Group

LABELS = ("entailment", "neutral", "contradiction")
SINGLE = 0.55  # share of premises of one sentence


def make(draw: Draw) -> list[Row]:
    """Return one row; the three labels take turns."""
    label = LABELS[draw.turn % len(LABELS)]
    claim, stated = Case(draw).facts(label)
    if draw.rng.random() < SINGLE:
        del stated[1]
    draw.rng.shuffle(stated)
    premise = " ".join(draw.sentence(fact).text for fact in stated)
    hypothesis = draw.bare_sentence(claim)
    if hypothesis in premise:
        return make(draw)
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
