"""A text with marked spans as words with IOB2 tags.

Words are runs of letters, digits and marks; every other visible character is a word of its own, and
so is every Chinese character and Japanese kana, as no spaces stand between them.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from ptrun.errors import UserError
from ptrun.task.shown import shown

_ALONE = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")


@dataclass(frozen=True)
class Span:
    """The characters `start` to `end`, from 0 and without the last, their type, and their text.

    A text of None is not checked.
    """

    start: int
    end: int
    label: str
    text: str | None = None

    def __str__(self) -> str:
        return f"{self.start}-{self.end} ({self.label})"


def words(text: str) -> list[tuple[int, int]]:
    """Return the start and end of each word."""
    places: list[tuple[int, int]] = []
    goes_on = False
    for at, char in enumerate(text):
        if unicodedata.category(char) == "Cf":  # invisible, such as a joiner inside a word
            continue
        joins = _joins(char)
        if joins and goes_on:
            places[-1] = (places[-1][0], at + 1)
        elif not char.isspace() and not unicodedata.category(char).startswith("C"):
            places.append((at, at + 1))
        goes_on = joins
    return places


def _joins(char: str) -> bool:
    marks = char == "_" or unicodedata.category(char).startswith("M")
    return (char.isalnum() or marks) and not _ALONE.match(char)


def tagged(where: str, text: str, spans: Sequence[Span]) -> tuple[list[str], list[str]]:
    """Return the words of a text and their tags, `O`, `B-<type>` or `I-<type>`.

    Args:
        where: the place of the text, for errors.
        text: the text.
        spans: in any order; whitespace at their ends does not count.

    Raises:
        UserError: the text has no word, or a span is outside it, holds no word, cuts a word,
            differs from its text, or overlaps another one.
    """
    places = words(text)
    if not places:
        raise UserError(f"{where}: {shown(text)} has no word. Remove it.")
    owners: list[Span | None] = [None] * len(places)
    tags = ["O"] * len(places)
    for span in sorted(spans, key=lambda s: (s.start, s.end)):
        for number, index in enumerate(_covered(where, text, places, span)):
            if (other := owners[index]) is not None:
                raise UserError(
                    f"{where}: spans {other} and {span} overlap; a word has one tag. Keep one."
                )
            owners[index] = span
            tags[index] = f"{'I' if number else 'B'}-{span.label}"
    return [text[start:end] for start, end in places], tags


def _covered(where: str, text: str, places: Sequence[tuple[int, int]], span: Span) -> list[int]:
    """Return the indices of a span's words."""
    if not 0 <= span.start < span.end <= len(text):
        raise UserError(
            f"{where}: span {span} is outside the text of {len(text)} characters. start counts "
            "from 0, and end is the character after the last."
        )
    marked = text[span.start : span.end]
    if span.text is not None and span.text != marked:
        raise UserError(
            f"{where}: span {span} says {shown(span.text)}, but the text there is {shown(marked)}. "
            "start and end must count characters, not bytes."
        )
    touched = [i for i, (start, end) in enumerate(places) if start < span.end and end > span.start]
    if not touched:
        raise UserError(f"{where}: span {span} has no word, only spaces. Remove it.")
    first, last = places[touched[0]], places[touched[-1]]
    for start, end in (first, last):
        if start < span.start or end > span.end:
            raise UserError(
                f"{where}: span {span}, {shown(marked)}, cuts the word "
                f"{shown(text[start:end])}. Mark whole words: {first[0]}-{last[1]}."
            )
    return touched
