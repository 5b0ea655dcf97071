"""Pairs of premise and hypothesis: entailment, neutral or contradiction, decided by the premise.

A hypothesis takes a subject and an object that the premise often names too, together or apart, so
it matters what is said of whom. Names and relations are spread over the labels alike.
"""

from ptrun.pocket.draw import Draw, Row, splits
from ptrun.pocket.facts import Fact
from ptrun.pocket.groups import GROUPS, OBJECT, Group, people, things

LABELS = ("entailment", "neutral", "contradiction")
SINGLE = 0.55  # share of premises of one sentence


def rows(split: str) -> list[Row]:
    """Return the rows of a split: a third of each label."""
    return splits("pairs", _make, ("premise", "hypothesis"))[split]


def _make(draw: Draw) -> list[Row]:
    label = LABELS[draw.turn % len(LABELS)]
    claim, told = Case(draw).facts(label)
    if draw.rng.random() < SINGLE:
        del told[1]
    draw.rng.shuffle(told)
    premise = " ".join(draw.tell(fact).text for fact in told)
    hypothesis = draw.bare(claim)
    if hypothesis in premise:
        return _make(draw)
    return [{"premise": premise, "hypothesis": hypothesis, "label": label}]


class Case:
    """A hypothesis (s, relation, o) and what else a premise may say: of s2, of o2."""

    def __init__(self, draw: Draw) -> None:
        """Draw the relation and who and what takes part."""
        self.draw = draw
        self.group: Group = draw.rng.choice(GROUPS)
        self.relation = draw.rng.choice(list(self.group.unique))
        self.by_object = self.group.unique[self.relation] == OBJECT
        self.s, self.s2 = people(2, draw)
        self.o, self.o2 = things(self.group.kind, 2, draw, self.s, self.s2)

    def facts(self, label: str) -> tuple[Fact, list[Fact]]:
        """Return the fact of the hypothesis and the two of the premise, the telling one first."""
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
        thing = self.draw.value(group.kind, self.s, self.s2, self.o)
        return self.draw.fact(self.draw.rng.choice(group.relations), self.s, thing)

    def _clash(self) -> list[Fact]:
        if self.draw.rng.random() < 0.5:
            return [self._crossed(self.relation), self._fact(self._other(), 1, 1)]
        return [self._crossed(self.relation), self._filler(self._any())]

    def _crossed(self, relation: str) -> Fact:
        """Return a fact with one end of the hypothesis: the one that can have one partner only."""
        return self._fact(relation, 1, 2) if self.by_object else self._fact(relation, 2, 1)

    def _filler(self, relation: str) -> Fact:
        return self._fact(relation, 2, 1) if self.by_object else self._fact(relation, 1, 2)

    def _other(self) -> str:
        return self.draw.rng.choice(self.group.besides(self.relation))

    def _any(self) -> str:
        """Return any relation of the group; nobody marries twice, on neither side."""
        if self.relation == "married_to":
            return self._other()
        return self.draw.rng.choice(self.group.relations)
