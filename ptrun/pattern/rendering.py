"""Renders a pattern and an example into pieces: the texts and slots of one row, in order."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ptrun.errors import UserError
from ptrun.pattern.slots import FACT_SUBJECT, LISTS, Border, Field, Group, Hole, LiteralText, Part

GAP = "@placeholder"
LIMITS = "limits"
"""The entry of an example's fields with the most tokens of a field's text, by name."""
SIGNS: Mapping[str, Sequence[str]] = {
    "letters": "ABCDEFGHIJKLMNOP",
    "numerals": [*"一二三四五六七八九十", *("十" + digit for digit in "一二三四五六")],
}
"""The signs before the items of a list, in PPT's two ways."""
_MARKS = {"letters": (". ", "."), "numerals": ("、", "；")}  # noqa: RUF001
"""What comes after a sign, and after an item."""
_BETWEEN = {"commas": ", ", "or": " or ", "or_quoted": '" or "', "or_quotes": ' " or " '}
_SPACES = " \t"


@dataclass(frozen=True)
class Piece:
    """One text or slot of a row.

    Args:
        kind: `literal` text of the pattern, text of a `field`, a slot, or the `separator` of two
            texts in one segment.
        text: without spaces at either end; empty for slots.
        shortenable: whether it loses tokens first.
        spaced: whether a space comes before it.
        segment: 0, or 1 after the border.
        count: how many learned vectors.
        item: the index of a written-out label word.
        most: the tokens of a field to keep; None for all.
    """

    kind: Literal["literal", "field", "mask", "masks", "soft", "separator"]
    text: str = ""
    shortenable: bool = False
    spaced: bool = False
    segment: int = 0
    count: int = 1
    item: int | None = None
    most: int | None = None


class Line:
    """The pieces of an example so far, and whether a space comes before the next one."""

    def __init__(self, fields: Mapping[str, Any], words: Sequence[str], where: str) -> None:
        self.pieces: list[Piece] = []
        self._fields, self._words, self._where = fields, words, where
        self._spaced, self._segment = False, 0

    def add(self, part: Part) -> None:
        """Append a part of the pattern."""
        if isinstance(part, LiteralText):
            self._literal(part.text)
        elif isinstance(part, Border):
            self._segment, self._spaced = 1, False
        elif isinstance(part, Hole):
            self._hole(part.kind, part.count)
        elif isinstance(part, Group):
            is_shown = any(self._text(slot.name).strip() for slot in part.fields)
            for inner in part.parts if is_shown else ():
                self.add(inner)
        elif part.ending in LISTS:
            self._list(part)
        else:
            raw = self._text(part.name)
            text = part.filtered(raw)
            if part.ending is None:  # a space that a filter wrote counts
                self._spaced |= text[:1].isspace() and not raw[:1].isspace()
                self._field(text, part)
            elif part.ending == "gap":
                self._gap(text, part)
            else:
                self._fact(text, part)

    def _literal(self, text: str, item: int | None = None) -> None:
        """Append literal text; spaces at its ends stand before it and before the next piece."""
        spaced = self._spaced or text.startswith(tuple(_SPACES))
        if bare := text.strip(_SPACES):
            self.pieces.append(Piece("literal", bare, False, spaced, self._segment, item=item))
            spaced = text[-1:] in _SPACES
        self._spaced = spaced

    def _field(self, text: str, slot: Field) -> None:
        """Append the text of a field; spaces at its ends are dropped."""
        if bare := text.strip():
            most = self._fields.get(LIMITS, {}).get(slot.name)
            place = slot.shortenable, self._spaced, self._segment
            self.pieces.append(Piece("field", bare, *place, most=most))
            self._spaced = False

    def _hole(self, kind: Literal["mask", "masks", "soft"], count: int = 1) -> None:
        """Append masks or learned vectors."""
        self.pieces.append(Piece(kind, spaced=self._spaced, segment=self._segment, count=count))
        self._spaced = False

    def _value(self, name: str) -> Any:
        if name not in self._fields:
            there = ", ".join(self._fields)
            raise UserError(f"{self._where}: no field {name!r}; the example has {there}.")
        return self._fields[name]

    def _text(self, name: str) -> str:
        text = self._value(name)
        if not isinstance(text, str):
            raise UserError(
                f"{self._where}: field {name!r} is {type(text).__name__}, not one text; "
                f"a list is written as {{{name}|letters}}, one of {', '.join(LISTS)}."
            )
        return text

    def _list(self, slot: Field) -> None:
        is_words, style = slot.name == "words", str(slot.ending)
        texts = list(self._words) if is_words else self._value(slot.name)
        if not isinstance(texts, list) or not texts or not all(isinstance(t, str) for t in texts):
            wrong = f"field {slot.name!r} is {texts!r}, not a list of texts"
            wrong = "no label words" if is_words else wrong
            raise UserError(f"{self._where}: {wrong}; {style} writes a list out.")
        signs, count = SIGNS.get(style, ()), len(texts)
        if signs and count > len(signs):
            most = f"{style} writes at most {len(signs)} out"
            raise UserError(f"{self._where}: {count} items; {most}.")
        spaced = self._spaced
        for item, raw in enumerate(texts):
            if signs:
                self._spaced = spaced
                self._literal(signs[item])
                self._literal(_MARKS[style][0])
            elif item:
                self._literal(_BETWEEN[style])
            text = slot.filtered(raw)
            if is_words:
                self._literal(text, item=item)
            else:
                self._field(text, slot)
            if signs:
                self._spaced = False
                self._literal(_MARKS[style][1])

    def _gap(self, text: str, slot: Field) -> None:
        """Append a text with a gap for its answer (ReCoRD's queries)."""
        if GAP not in text:
            raise UserError(
                f"{self._where}: field {slot.name!r} is {text!r}; gap needs {GAP} in it."
            )
        for i, part in enumerate(text.split(GAP, maxsplit=1)):
            if i == 1:
                self._hole("masks")
            self._spaced |= part[:1].isspace()
            self._field(part, slot)
            self._spaced |= part[-1:].isspace()

    def _fact(self, text: str, slot: Field) -> None:
        """Append a relation's template (LAMA): its words are literal, its subject is a field."""
        subject = self._text(FACT_SUBJECT)
        for part in re.split(r"(\[X\]|\[Y\])", text):
            if part == "[X]":
                self._field(subject, slot)
            elif part == "[Y]":
                self._hole("mask")
                if slot.ending == "fact_start":
                    return
            else:
                self._literal(part)


def one_segment(pieces: Sequence[Piece]) -> list[Piece]:
    """Return pieces without a border; a space takes its place."""
    merged: list[Piece] = []
    for before, piece in zip([*pieces[:1], *pieces], pieces, strict=False):
        opens = piece.segment > before.segment
        merged.append(replace(piece, segment=0, spaced=piece.spaced or opens))
    return merged


def separated(pieces: Sequence[Piece]) -> list[Piece]:
    """Return pieces without a border; a separator takes its place."""
    sides = [[p for p in pieces if p.segment == side] for side in (0, 1)]
    if not sides[1]:
        return list(pieces)
    merged, at = one_segment(pieces), len(sides[0])
    return [*merged[:at], Piece("separator"), *merged[at:]]
