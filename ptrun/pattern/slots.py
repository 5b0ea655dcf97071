"""The parts of a pattern: literal text, slots and the border; parses `{...}`."""

import re
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from ptrun.errors import UserError

LISTS = ("letters", "numerals", "commas", "or", "or_quoted", "or_quotes")
"""Filters that write a list out; the last in their slot."""
FACTS = ("fact", "fact_start")
"""Filters that write a relation's template."""
GAPS = ("gap", *FACTS)
"""Filters that write a text with a gap for the answer; the last in their slot."""

FACT_SUBJECT = "sub_label"
_NAME = re.compile(r"[^\W\d]\w*")
_SOFT = re.compile(r"soft(?::(\d{1,5}))?")  # no row has room for more


@dataclass(frozen=True)
class LiteralText:
    """Literal text, spaces included."""

    text: str


@dataclass(frozen=True)
class Border:
    """The border between two segments, `||`."""


@dataclass(frozen=True)
class Hole:
    """Masks or learned vectors: `mask` is one, `masks` as many as an answer needs."""

    kind: Literal["mask", "masks", "soft"]
    count: int = 1


@dataclass(frozen=True)
class Field:
    """A field of the example, or `words`, with its filters.

    `shortenable` fields lose tokens first; `ending` is the filter that writes a list or a gap.
    """

    name: str
    filters: tuple[str, ...]
    shortenable: bool
    ending: str | None

    @property
    def names(self) -> tuple[str, ...]:
        """The fields of the example that this slot writes."""
        subject = (FACT_SUBJECT,) if self.ending in FACTS else ()
        return subject if self.name == "words" else (self.name, *subject)

    def filtered(self, text: str) -> str:
        """Return a text with the filters applied, except `ending`."""
        for name in self.filters:
            text = FILTERS[name](text)
        return text


@dataclass(frozen=True)
class Group:
    """Text and fields that are left out together if all the fields are empty, `[[ ... ]]`."""

    parts: "tuple[Part, ...]"

    @property
    def fields(self) -> list[Field]:
        """Its fields."""
        return [part for part in self.parts if isinstance(part, Field)]


Part = LiteralText | Border | Hole | Field | Group


def slot_of(inside: str, where: str) -> Hole | Field:
    """Return the slot between braces; a refusal begins with `where`: the pattern, the position."""
    text = inside.strip()
    if soft := _SOFT.fullmatch(text):
        count = int(soft.group(1) or 1)
        if count < 1:
            raise UserError(f"{where}: {{{inside}}} has no vector; write {{soft}} or {{soft:3}}.")
        return Hole("soft", count)
    if text in ("mask", "masks"):
        return Hole("mask" if text == "mask" else "masks")
    name, *filters = [part.strip() for part in text.removeprefix("~").split("|")]
    if not _NAME.fullmatch(name) or name in ("mask", "masks", "soft"):
        raise UserError(
            f"{where}: {{{text}}} is no slot; write {{field}}, {{~field}}, {{field|filter}}, "
            "{mask}, {masks}, {soft} or {soft:3}."
        )
    ending = filters.pop() if filters and filters[-1] in LISTS + GAPS else None
    for filter_ in filters:
        if filter_ in LISTS + GAPS:
            raise UserError(f"{where}: filter {filter_!r} must be the last of its slot.")
        if filter_ not in FILTERS:
            allowed = ", ".join([*FILTERS, *LISTS, *GAPS])
            raise UserError(f"{where}: no filter {filter_!r}; there are {allowed}.")
    slot = Field(name, tuple(filters), text.startswith("~"), ending)
    if name == "words" and (ending not in LISTS or slot.shortenable):
        forms = " or ".join(f"{{words|{filter_}}}" for filter_ in LISTS)
        raise UserError(f"{where}: {{{text}}}: write label words as {forms}.")
    return slot


_FINAL = string.punctuation + "。，、；：？！…“”‘’）》"  # noqa: RUF001  full-width is meant

FILTERS: Mapping[str, Callable[[str], str]] = {
    "strip_end": lambda text: text.rstrip().rstrip(_FINAL).rstrip(),
    "lower_first": lambda text: text[:1].lower() + text[1:],
    "capital": lambda text: text[:1].upper() + text[1:],
    "clause": lambda text: ", so" if text == "so" else f" {text}",  # as it follows one (GLM, COPA)
}
"""Text to text; a list of texts is filtered item by item. `strip_end` drops final punctuation."""
