"""The facts of the pocket world as records (subject, relation, object)."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from ptrun.pocket.entity import Entity
from ptrun.pocket.lexicon import table, words

ByKind = dict[str, tuple[Entity, ...]]


@dataclass(frozen=True)
class Fact:
    """A relation that holds between a subject and an object (an entity, or a plain word).

    `details` fixes words that every sentence about the fact must agree on, such as its year.
    """

    relation: str
    subject: Entity
    object: Entity | str
    details: dict[str, str] = field(default_factory=dict, compare=False)

    @property
    def entities(self) -> tuple[Entity, ...]:
        """The entities that take part, the subject first."""
        return tuple(e for e in (self.subject, self.object) if isinstance(e, Entity))

    @property
    def reserved(self) -> bool:
        """Whether the fact must stay out of training rows of the tasks."""
        return any(e.reserved for e in self.entities)

    @property
    def hidden(self) -> bool:
        """Whether the fact must stay out of the corpus."""
        return any(e.hidden for e in self.entities)


COUPLES = 80
SAME_HALF = 0.3  # chance that both ends of a fact are open, or both reserved


def facts(by_kind: ByKind, rng: random.Random) -> Iterator[Fact]:
    """Yield all facts of the world, none of them twice."""
    seen: set[tuple[str, str, str]] = set()
    for fact in _drawn(by_kind, rng):
        ends = fact.object.id if isinstance(fact.object, Entity) else fact.object
        key = (fact.relation, fact.subject.id, ends)
        if key not in seen and fact.subject is not fact.object:
            seen.add(key)
            yield fact


def _drawn(by_kind: ByKind, rng: random.Random) -> Iterator[Fact]:
    for relation, count in table("world")["per_subject"].items():
        for subject in _repeated(relation, "subject", count, by_kind, rng):
            partner = _partner(relation, "object", subject, by_kind, rng)
            yield detailed(relation, subject, partner, rng)
    for relation, count in table("world")["per_object"].items():
        for target in _repeated(relation, "object", count, by_kind, rng):
            partner = _partner(relation, "subject", target, by_kind, rng)
            yield detailed(relation, partner, target, rng)
    yield from _families(by_kind["person"], rng)


def _repeated(
    relation: str, end: str, count: float, by_kind: ByKind, rng: random.Random
) -> Iterator[Entity]:
    """Yield each entity that can be an end of a relation, once for each of its facts."""
    for kind in table("relations")[relation][end].split():
        for entity in by_kind[kind]:
            yield from [entity] * (int(count) if count >= 1 else int(rng.random() < count))


def _partner(
    relation: str, end: str, other: Entity, by_kind: ByKind, rng: random.Random
) -> Entity | str:
    kinds = table("relations")[relation][end].split()
    if kinds[0] not in by_kind:
        return rng.choice(words("lexicon", kinds[0]))
    kind = rng.choice(kinds)
    same = [e for e in by_kind[kind] if e.reserved == other.reserved]
    return rng.choice(same if rng.random() < SAME_HALF else by_kind[kind])


def detailed(
    relation: str, subject: Entity | str, target: Entity | str, rng: random.Random
) -> Fact:
    """Return a fact with drawn details."""
    assert isinstance(subject, Entity)
    details = {"year": str(rng.randrange(1920, 2000))}
    for name in ("subject_taught", "product", "score"):
        details[name] = rng.choice(words("lexicon", name))
    return Fact(relation, subject, target, details)


def _families(people: Sequence[Entity], rng: random.Random) -> Iterator[Fact]:
    """Yield marriages, each from both sides, and children who share a parent's family name."""
    women = [p for p in people if p.gender == "f"]
    men = [p for p in people if p.gender == "m"]
    for wife, husband in zip(rng.sample(women, COUPLES), rng.sample(men, COUPLES), strict=True):
        fact = detailed("married_to", wife, husband, rng)
        yield from (fact, replace(fact, subject=husband, object=wife))
    for child in people:
        parents = [p for p in people if p.short == child.short and p is not child]
        if parents and rng.random() < 0.5:
            yield detailed("child_of", child, rng.choice(parents), rng)
