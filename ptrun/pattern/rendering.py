"""Renders a pattern and an example into pieces: the texts and slots of one row, in order."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ptrun.errors import UserError
from ptrun.pattern.slots import FACT_SUBJECT, LISTS, Border, Field, Hole, LiteralText, Part

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


class _Line:
    """The pieces so far, and whether a space comes before the next one."""

    def __init__(self, limits: Mapping[str, int]) -> None:
        self.pieces: list[Piece] = []
        self.spaced, self._segment, self._limits = False, 0, limits

    def text(self, text: str, item: int | None = None) -> None:
        """Append literal text; spaces at its ends stand before it and before the next piece."""
        spaced = self.spaced or text.startswith(tuple(_SPACES))
        if bare := text.strip(_SPACES):
            self.pieces.append(Piece("literal", bare, False, spaced, self._segment, item=item))
            spaced = text[-1:] in _SPACES
        self.spaced = spaced

    def field(self, text: str, slot: Field) -> None:
        """Append the text of a field; spaces at its ends are dropped."""
        if bare := text.strip():
            place, most = (slot.shortenable, self.spaced, self._segment), self._limits
            self.pieces.append(Piece("field", bare, *place, most=most.get(slot.name)))
            self.spaced = False

    def hole(self, kind: Literal["mask", "masks", "soft"], count: int = 1) -> None:
        """Append masks or learned vectors."""
        self.pieces.append(Piece(kind, spaced=self.spaced, segment=self._segment, count=count))
        self.spaced = False

    def border(self) -> None:
        """Begin the second segment."""
        self._segment, self.spaced = 1, False


def render(
    parts: Iterable[Part], fields: Mapping[str, Any], words: Sequence[str], where: str
) -> list[Piece]:
    """Return the pieces of an example."""
    line = _Line(fields.get(LIMITS, {}))
    for part in parts:
        if isinstance(part, LiteralText):
            line.text(part.text)
        elif isinstance(part, Border):
            line.border()
        elif isinstance(part, Hole):
            line.hole(part.kind, part.count)
        elif part.ending in LISTS:
            _write_list(line, part, fields, words, where)
        else:
            _write(line, part, fields, where)
    return line.pieces


def _write(line: _Line, slot: Field, fields: Mapping[str, Any], where: str) -> None:
    raw = _text(slot.name, fields, where)
    text = slot.filtered(raw)
    if slot.ending is None:
        line.spaced |= text[:1].isspace() and not raw[:1].isspace()  # a space that a filter wrote
        line.field(text, slot)
    elif slot.ending == "gap":
        _write_gap(line, text, slot, where)
    else:
        _write_fact(line, text, slot, _text(FACT_SUBJECT, fields, where))


def _text(name: str, fields: Mapping[str, Any], where: str) -> str:
    text = _value(name, fields, where)
    if not isinstance(text, str):
        raise UserError(
            f"{where}: field {name!r} is {type(text).__name__}, not one text; "
            f"a list is written as {{{name}|letters}}, one of {', '.join(LISTS)}."
        )
    return text


def _value(name: str, fields: Mapping[str, Any], where: str) -> Any:
    if name not in fields:
        raise UserError(f"{where}: no field {name!r}; the example has {', '.join(fields)}.")
    return fields[name]


def _write_list(
    line: _Line, slot: Field, fields: Mapping[str, Any], words: Sequence[str], where: str
) -> None:
    is_words, style = slot.name == "words", str(slot.ending)
    texts = list(words) if is_words else _value(slot.name, fields, where)
    if not isinstance(texts, list) or not texts or not all(isinstance(t, str) for t in texts):
        wrong = f"field {slot.name!r} is {texts!r}, not a list of texts"
        wrong = "no label words" if is_words else wrong
        raise UserError(f"{where}: {wrong}; {style} writes a list out.")

    signs = SIGNS.get(style, ())
    if signs and len(texts) > len(signs):
        raise UserError(f"{where}: {len(texts)} items; {style} writes at most {len(signs)} out.")
    spaced = line.spaced
    for item, raw in enumerate(texts):
        if signs:
            line.spaced = spaced
            line.text(signs[item])
            line.text(_MARKS[style][0])
        elif item:
            line.text(_BETWEEN[style])
        text = slot.filtered(raw)
        if is_words:
            line.text(text, item=item)
        else:
            line.field(text, slot)
        if signs:
            line.spaced = False
            line.text(_MARKS[style][1])


def _write_gap(line: _Line, text: str, slot: Field, where: str) -> None:
    """Append a text with a gap for its answer (ReCoRD's queries)."""
    if GAP not in text:
        raise UserError(f"{where}: field {slot.name!r} is {text!r}; gap needs {GAP} in it.")
    for i, part in enumerate(text.split(GAP, maxsplit=1)):
        if i == 1:
            line.hole("masks")
        line.spaced |= part[:1].isspace()
        line.field(part, slot)
        line.spaced |= part[-1:].isspace()


def _write_fact(line: _Line, text: str, slot: Field, subject: str) -> None:
    """Append a relation's template (LAMA): its words are literal, its subject is a field."""
    for part in re.split(r"(\[X\]|\[Y\])", text):
        if part == "[X]":
            line.field(subject, slot)
        elif part == "[Y]":
            line.hole("mask")
            if slot.ending == "fact_start":
                return
        else:
            line.text(part)


# Rendered pieces in one segment: with a space at the border, or with a separator as text.


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
