"""The words of the pocket world, and a small language for its sentences.

In a template `{role}` or `{role:form}` is a slot, `[a|b|]` picks one branch, and `<words>` marks
the predicate.
"""

import random
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from typing import Any

_TOKEN = re.compile(r"(\{\w+(?::\w+)?\}|[\[\]|<>])")


@cache
def table(name: str, package: str = __package__) -> dict[str, Any]:
    """Return the data file `name`.toml of a package as a dictionary."""
    return tomllib.loads(resources.files(package).joinpath(f"{name}.toml").read_text("utf-8"))


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
class Choice:
    """Branches of which exactly one is rendered."""

    branches: tuple[tuple["Part", ...], ...]


@dataclass(frozen=True)
class Predicate:
    """Words that name the relation."""

    body: tuple["Part", ...]


Part = str | Slot | Choice | Predicate


@dataclass(frozen=True)
class Span:
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
    spans: list[Span] = field(default_factory=list)

    def add(self, filler: Filler, role: str) -> None:
        """Append a filler and the span of its words."""
        start = len(self.text) + len(filler.before)
        self.text += filler.before + filler.text + filler.after
        end = start + len(filler.text)
        named = filler.named and filler.entity is not None
        self.spans.append(Span(start, end, role, filler.entity, named))

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
            branches[-1].append(Choice(inner) if token == "]" else Predicate(inner[0]))
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
        elif isinstance(part, Choice):
            _write(rng.choice(part.branches), fill, rng, out)
        else:
            start = len(out.text)
            _write(part.body, fill, rng, out)
            out.spans.append(Span(start, len(out.text), "predicate"))
