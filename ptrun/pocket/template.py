"""A small template language: text with slots, choices and a marked predicate.

`{role}` or `{role:form}` is a slot, `[a|b|]` picks one branch, `<words>` marks the predicate.
"""

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache


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


TOKEN = re.compile(r"\{(\w+)(?::(\w+))?\}|([\[\]|<>])")


@cache
def parse(template: str) -> tuple[Part, ...]:
    """Parse a template. Raises ValueError where brackets do not match."""
    pieces: list[Part] = []
    position = 0
    for match in TOKEN.finditer(template):
        if match.start() > position:
            pieces.append(template[position : match.start()])
        pieces.append(Slot(match[1], match[2] or "") if match[1] else f"\0{match[3]}")
        position = match.end()
    pieces.append(template[position:])
    body, rest = _sequence(pieces, 0)
    if rest != len(pieces):
        raise ValueError(f"unmatched bracket in template {template!r}")
    return body


def _sequence(pieces: list[Part], at: int) -> tuple[tuple[Part, ...], int]:
    body: list[Part] = []
    while at < len(pieces) and pieces[at] not in ("\0|", "\0]", "\0>"):
        if pieces[at] == "\0[":
            choice, at = _choice(pieces, at + 1)
            body.append(choice)
        elif pieces[at] == "\0<":
            inner, at = _sequence(pieces, at + 1)
            body.append(Predicate(inner))
        elif pieces[at]:
            body.append(pieces[at])
        at += 1
    return tuple(body), at


def _choice(pieces: list[Part], at: int) -> tuple[Choice, int]:
    branches = []
    while True:
        body, at = _sequence(pieces, at)
        branches.append(body)
        if at >= len(pieces) or pieces[at] != "\0|":
            return Choice(tuple(branches)), at
        at += 1


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
