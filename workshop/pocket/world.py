"""The pocket world: its names, entities and facts, the same in every process.

Families are called like towns, firms like people, books like any of them. Names of the reserved
half of the world prefer reserved parts (see names.toml).
"""

import random
import re
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

# The words of the pocket world, and a small language for its sentences.
#
# In a template `{role}` or `{role:form}` is a slot, `[a|b|]` picks one branch, and `<words>` marks
# the predicate.

_TOKEN = re.compile(r"(\{\w+(?::\w+)?\}|[\[\]|<>])")


@cache
def table(name: str) -> dict[str, Any]:
    """Return the data file `name`.toml as a dictionary."""
    return tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text("utf-8"))


def items(text: str) -> tuple[str, ...]:
    """Split a word list: at semicolons and line ends if it has a semicolon, else at blanks."""
    if ";" not in text:
        return tuple(text.split())
    parts = text.replace("\n", ";").split(";")
    return tuple(part.strip() for part in parts if part.strip())


@cache
def words(name: str, key: str) -> tuple[str, ...]:
    """Return the word list `key` of the data file `name`."""
    return items(table(name)[key])


@dataclass(frozen=True)
class Slot:
    """A gap to be filled: who (`role`) and in which grammatical form."""

    role: str
    form: str


@dataclass(frozen=True)
class Branches:
    """Branches of which exactly one is rendered."""

    branches: tuple[tuple["Part", ...], ...]


@dataclass(frozen=True)
class Predicate:
    """Words that name the relation."""

    body: tuple["Part", ...]


Part = str | Slot | Branches | Predicate


@dataclass(frozen=True)
class RoleSpan:
    """Characters [start, end) of a text that fill `role`.

    `entity` is an entity's id or None; `named` is false for pronouns and common nouns.
    """

    start: int
    end: int
    role: str
    entity: str | None = None
    named: bool = False


@dataclass(frozen=True)
class Filler:
    """Text for a slot; `before` and `after` are written around it, outside its span."""

    text: str
    entity: str | None = None
    before: str = ""
    after: str = ""
    named: bool = True


@dataclass
class Text:
    """A text under construction with the spans of its slots."""

    text: str = ""
    spans: list[RoleSpan] = field(default_factory=list)

    def add(self, filler: Filler, role: str) -> None:
        """Append a filler and the span of its words."""
        start = len(self.text) + len(filler.before)
        self.text += filler.before + filler.text + filler.after
        end = start + len(filler.text)
        named = filler.named and filler.entity is not None
        self.spans.append(RoleSpan(start, end, role, filler.entity, named))

    def join(self, other: "Text", between: str = " ") -> "Text":
        """Return this text followed by `between` and `other`, spans moved along."""
        shift = len(self.text) + len(between)
        moved = [replace(s, start=s.start + shift, end=s.end + shift) for s in other.spans]
        return Text(self.text + between + other.text, self.spans + moved)


@cache
def parse(template: str) -> tuple[Part, ...]:
    """Parse a template. Raises ValueError if brackets do not match."""
    branches: list[list[Part]] = [[]]
    outer: list[tuple[str, list[list[Part]]]] = []  # open brackets, and the branches around them
    for token in _TOKEN.split(template):
        opened = outer[-1][0] if outer else ""
        if token in ("[", "<"):
            outer.append((token, branches))
            branches = [[]]
        elif opened + token in ("[]", "<>"):
            inner = tuple(map(tuple, branches))
            branches = outer.pop()[1]
            branches[-1].append(Branches(inner) if token == "]" else Predicate(inner[0]))
        elif opened + token == "[|":
            branches.append([])
        elif token in ("]", ">", "|"):
            raise ValueError(f"unmatched bracket in template {template!r}")
        elif token:
            branches[-1].append(_slot(token) if token[0] == "{" else token)
    if outer:
        raise ValueError(f"unmatched bracket in template {template!r}")
    return tuple(branches[0])


def _slot(token: str) -> Slot:
    role, _, form = token[1:-1].partition(":")
    return Slot(role, form)


def render(
    template: str, fill: Callable[[Slot], Filler | str], rng: random.Random, capital: bool = True
) -> Text:
    """Render a template; `fill` gives each slot its words (a plain string gets a span too)."""
    out = Text()
    _write(parse(template), fill, rng, out)
    if capital:
        out.text = out.text[:1].upper() + out.text[1:]
    return out


def _write(
    parts: tuple[Part, ...], fill: Callable[[Slot], Filler | str], rng: random.Random, out: Text
) -> None:
    for part in parts:
        if isinstance(part, str):
            out.text += part
        elif isinstance(part, Slot):
            filler = fill(part)
            out.add(Filler(filler) if isinstance(filler, str) else filler, part.role)
        elif isinstance(part, Branches):
            _write(rng.choice(part.branches), fill, rng, out)
        else:
            start = len(out.text)
            _write(part.body, fill, rng, out)
            out.spans.append(RoleSpan(start, len(out.text), "predicate"))


KIND_WORD = {"book": "novel", "painting": "picture"}
PRONOUNS = {"f": ("she", "her", "her"), "m": ("he", "him", "his"), "n": ("it", "it", "its")}
FAMILY_WORD = {"f": ("daughter", "mother"), "m": ("son", "father"), "n": ("child", "parent")}
TITLES = {"f": ("Mrs", "Miss", "Doctor", "Judge"), "m": ("Mr", "Captain", "Doctor", "Professor")}
PLURAL = ("Two", "Three")
SHARE_OF_COMPOUNDS = 60
RESERVED_COMPOUNDS = 20
REPEATS = 4  # how much likelier a reserved part is than an open one in a reserved name
RESERVED_SHARE = 0.4
HIDDEN_SHARE = 0.15  # of the reserved entities
TOWN_PATTERNS = ("{}",) * 7 + ("Port {}", "Upper {}", "New {}")
COUPLES = 80
SAME_HALF = 0.3  # chance that both ends of a fact are open, or both reserved
SEED = "pocket world 1"


@dataclass(frozen=True)
class Entity:
    """A person, a place, an organisation or a work.

    `short` holds short names (a family name, a club's town). `article` is written before the name
    and is no part of it. `gender` is f, m or n; `given` is a person's first name. `reserved`
    entities stay out of the training rows of the tasks, `hidden` ones out of the corpus.
    """

    id: str
    kind: str
    name: str
    short: tuple[str, ...] = ()
    article: str = ""
    gender: str = "n"
    given: str = ""
    reserved: bool = False
    hidden: bool = False


def mention(entity: Entity, form: str, style: str, rng: random.Random) -> Filler:
    """Return the words for an entity in a grammatical form.

    `style` is full, short or pronoun; the forms name and given never give a pronoun, and the
    forms he, him, his always do. The forms kind, child and parent give a common noun.
    """
    subject, object_, possessive = PRONOUNS[entity.gender]
    always = {"he": subject, "him": object_, "his": possessive}
    if form in always:
        return Filler(always[form], entity.id, named=False)
    if form in ("kind", "child", "parent"):
        return Filler(_common_noun(entity, form), named=False)
    if form == "given":
        return Filler(entity.given, entity.id)
    if style == "pronoun" and form != "name":
        words = {"obj": object_, "gen": possessive}.get(form, subject)
        return Filler(words, entity.id, named=False)
    return _named(entity, form, style, rng)


def _named(entity: Entity, form: str, style: str, rng: random.Random) -> Filler:
    if form == "gen":
        named = _named(entity, "name", style, rng)
        return replace(named, after="'" if named.text.endswith("s") else "'s")
    if style == "full" or not entity.short:
        return Filler(entity.name, entity.id, entity.article)
    before = ""
    if entity.kind == "person" and rng.random() < 0.3:
        before = rng.choice(TITLES[entity.gender]) + " "
    return Filler(rng.choice(entity.short), entity.id, before)


def _common_noun(entity: Entity, form: str) -> str:
    if form == "kind":
        return KIND_WORD.get(entity.kind, entity.kind)
    return FAMILY_WORD[entity.gender][form == "parent"]


@dataclass(frozen=True)
class Pools:
    """Name parts of one half of the world: open to training rows, or reserved."""

    reserved: bool
    compound: tuple[str, ...]
    plain: tuple[str, ...]
    women: tuple[str, ...]
    men: tuple[str, ...]
    noun: tuple[str, ...]
    rivers: tuple[str, ...]
    regions: tuple[str, ...]


def pools(rng: random.Random) -> tuple[Pools, Pools]:
    """Return the open and the reserved name parts; `rng` divides the compound names."""
    compounds = _compounds()
    rng.shuffle(compounds)
    cut = SHARE_OF_COMPOUNDS + RESERVED_COMPOUNDS
    opened, kept = compounds[:SHARE_OF_COMPOUNDS], compounds[SHARE_OF_COMPOUNDS:cut]
    return (
        _pools(False, opened, lambda key: words("names", key)),
        _pools(True, kept, lambda k: words("names", f"{k}_reserved") * REPEATS + words("names", k)),
    )


@cache
def everything() -> Pools:
    """Return all name parts together, for people and places of a single document."""
    return _pools(
        False, _compounds(), lambda k: words("names", k) + words("names", f"{k}_reserved")
    )


def _compounds() -> list[str]:
    return [head + tail for head in words("names", "heads") for tail in words("names", "tails")]


def _pools(reserved: bool, compounds: list[str], part: Callable[[str], tuple[str, ...]]) -> Pools:
    names = ("plain", "women", "men", "noun", "rivers", "regions")
    return Pools(reserved, tuple(compounds), *map(part, names))


def family(pool: Pools, rng: random.Random) -> str:
    """Return a family name; three in four are also names of towns."""
    return rng.choice(pool.plain if rng.random() < 0.75 else pool.compound)


def from_pattern(kind: str, pool: Pools, towns: list[str], rng: random.Random) -> tuple[str, str]:
    """Return a name made from one of the kind's patterns, and the short form it allows.

    The short form is the first family or town in the name, such as Marlow in "Marlow & Sons", or
    the name itself.
    """
    parts: list[str] = []
    carrier = ""
    for letter in rng.choice(table("names")[kind]).split():
        part = _part(letter, pool, towns, rng)
        if letter == "N" and parts and parts[0] in PLURAL:
            part += "s"
        if letter in ("F", "T") and not carrier:
            carrier = part
        parts.append(part)
    for i, (part, following) in enumerate(pairwise(parts)):
        if part in ("A", "a") and following[0] in "AEIOU":
            parts[i] = part + "n"
    name = " ".join(parts)
    return name, carrier or name


def _part(letter: str, pool: Pools, towns: list[str], rng: random.Random) -> str:
    """Return the words for a letter of a pattern; any other part stands for itself."""
    if letter == "F":
        return family(pool, rng)
    lists: dict[str, Sequence[str]] = {
        "P": pool.plain + pool.compound,
        "T": towns,
        "G": pool.women + pool.men,
        "N": pool.noun,
        "C": words("names", "common"),
        "D": words("names", "day"),
    }
    return rng.choice(lists[letter]) if letter in lists else letter


def entities(rng: random.Random) -> dict[str, tuple[Entity, ...]]:
    """Return every entity by kind; names are unique within a kind, never between kinds."""
    opened, kept = pools(rng)
    by_kind: dict[str, tuple[Entity, ...]] = {}
    for kind, count in table("world")["entities"].items():
        reserved = round(count * RESERVED_SHARE)
        by_name: dict[str, Entity] = {}
        _add(by_name, kind, count - reserved, opened, by_kind, rng)
        _add(by_name, kind, count, kept, by_kind, rng)
        by_kind[kind] = tuple(by_name.values())
    return by_kind


def _add(
    by_name: dict[str, Entity],
    kind: str,
    upto: int,
    pool: Pools,
    by_kind: dict[str, tuple[Entity, ...]],
    rng: random.Random,
) -> None:
    """Add entities with new names until there are `upto`, or the pool seems empty."""
    towns = [t.name for t in by_kind.get("town", ()) if t.reserved == pool.reserved]
    for _ in range(20 * upto):
        if len(by_name) == upto:
            return
        fields = _fields(kind, pool, towns, rng)
        hidden = pool.reserved and rng.random() < HIDDEN_SHARE
        name = f"{kind}-{len(by_name)}"
        entity = Entity(name, kind, reserved=pool.reserved, hidden=hidden, **fields)
        by_name.setdefault(entity.name, entity)


def stranger(kind: str, towns: list[str], taken: set[str], rng: random.Random) -> Entity:
    """Return a new entity of a kind whose name is not in `taken`."""
    while True:
        fields = _fields(kind, everything(), towns, rng)
        if fields["name"] not in taken:
            return Entity(f"{kind}-x", kind, **fields)


def _fields(kind: str, pool: Pools, towns: list[str], rng: random.Random) -> dict[str, Any]:
    if kind == "person":
        return _person(pool, rng)
    if kind == "region":
        return {"name": rng.choice(pool.regions)}
    if kind == "river":
        return {"name": rng.choice(pool.rivers), "article": rng.choice(("the ", "the river "))}
    if kind == "town":
        name = rng.choice(pool.plain if rng.random() < 0.7 else pool.compound)
        return {"name": rng.choice(TOWN_PATTERNS).format(name)}
    name, carrier = from_pattern(kind, pool, towns, rng)
    article = "the " if kind == "paper" or name.startswith("University") else ""
    if kind in ("firm", "club", "school"):
        return {"name": name, "short": (carrier,), "article": article}
    return {"name": name, "article": article}


def _person(pool: Pools, rng: random.Random) -> dict[str, Any]:
    gender = rng.choice("fm")
    given = rng.choice(pool.women if gender == "f" else pool.men)
    last = family(pool, rng)
    name = f"{given} {last}"
    return {"name": name, "short": (last,), "gender": gender, "given": given}


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


@dataclass(frozen=True)
class World:
    """All entities by kind, all facts, and the facts that each entity (by id) takes part in."""

    by_kind: dict[str, tuple[Entity, ...]]
    facts: tuple[Fact, ...]
    about: dict[str, tuple[Fact, ...]]

    def entities(self) -> tuple[Entity, ...]:
        """Return every entity, kind after kind."""
        return tuple(e for group in self.by_kind.values() for e in group)


@cache
def world() -> World:
    """Build the world, or return the one already built."""
    rng = random.Random(SEED)
    by_kind = entities(rng)
    drawn = tuple(facts(by_kind, rng))
    about: dict[str, list[Fact]] = defaultdict(list)
    for fact in drawn:
        for entity in fact.entities:
            about[entity.id].append(fact)
    return World(by_kind, drawn, {key: tuple(value) for key, value in about.items()})
