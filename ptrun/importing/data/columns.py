"""Files of columns, as the CoNLL tasks have them: a word a line, blank lines between sentences."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ptrun.errors import UserError
from ptrun.task.lines import text_lines
from ptrun.task.shown import shown

_NO_WORD = re.compile(r"-DOCSTART-|#begin document|#end document|#doc \d+\s*$")
_BRACKETS = re.compile(r"(?:\(([^()*\s]+))?\*([^()*\s]*\))?")
_ALONE = re.compile(r"\(([^()*\s]+)\)")  # CoNLL-2012 writes (GPE) for an entity of one word
_TAG = re.compile(r"O|[BIESULM]-\S+")
_AS_IOB2 = {"S": "B", "U": "B", "E": "I", "L": "I", "M": "I"}
"""Letters of BIOES, BILOU and BMES; these schemes are IOB2 in other letters."""
_END = re.compile(r"O|[BIESULM]-\S+|[_*-]|\S*[()*]\S*")  # of a line that is a word


@dataclass(frozen=True)
class Sentence:
    """The lines of a sentence: their places for errors, and their columns, equally many."""

    where: Sequence[str]
    lines: Sequence[Sequence[str]]

    def column(self, number: int) -> list[str]:
        """Return a column, counted from 1, or from -1 at the end.

        Raises:
            UserError: there are fewer columns.
        """
        width = len(self.lines[0])
        if not -width <= number <= width or number == 0:
            raise UserError(
                f"{self.where[0]}: {shown(' '.join(self.lines[0]))} has {width} columns, so none "
                f"is number {number}; choose others with --words, --tags and --roles."
            )
        place = number - 1 if number > 0 else number
        return [line[place] for line in self.lines]


def sentences(file: Path) -> Iterator[Sentence]:
    """Yield the sentences of a file; columns are separated by tabs, or else by spaces.

    Raises:
        UserError: the lines of a sentence differ in their number of columns.
    """
    where: list[str] = []
    lines: list[list[str]] = []
    for place, text in text_lines(file):
        columns = _columns(text)
        if not lines and columns and columns[0].startswith("#") and not _END.fullmatch(columns[-1]):
            continue  # a comment before the first word, as MultiCoNER and GermEval have them
        if columns and not _NO_WORD.match(text):
            if lines and len(columns) != len(lines[0]):
                raise UserError(
                    f"{place}: {shown(text.rstrip())} has {len(columns)} columns; the sentence "
                    f"began with {len(lines[0])}."
                )
            where.append(place)
            lines.append(columns)
        elif lines:
            yield Sentence(where, lines)
            where, lines = [], []
    if lines:
        yield Sentence(where, lines)


def _columns(text: str) -> list[str]:
    """Return the columns of a line; only tabs and spaces separate, not those inside words."""
    text = text.strip("\r\n")
    if "\t" in text:
        return [column.strip(" ") for column in text.split("\t")] if text.strip() else []
    return [column for column in text.split(" ") if column]


def tags(sentence: Sentence, number: int) -> list[str]:
    """Return a column of IOB1, IOB2, BIOES, BILOU, BMES or bracketed tags as IOB2.

    IOB1, the scheme of CoNLL-2003, writes `B-` only between entities of one type that touch.

    Raises:
        UserError: a line has no such tag.
    """
    column = sentence.column(number)
    if all("*" in tag or _ALONE.fullmatch(tag) for tag in column):
        return _spans(sentence, column)
    for where, tag in zip(sentence.where, column, strict=True):
        if not _TAG.fullmatch(tag):
            raise UserError(
                f"{where}: column {number} is {shown(tag)}, no tag; expected O, B-TYPE, I-TYPE (or "
                f"BIOES, BILOU, BMES) or brackets such as (TYPE*).\n{_other_scheme(column)}"
            )
    column = [f"{_AS_IOB2.get(tag[0], tag[0])}{tag[1:]}" if tag[1:] else tag for tag in column]
    before = ["O", *column[:-1]]
    return [_begun(tag, last) for tag, last in zip(column, before, strict=True)]


def _other_scheme(column: Sequence[str]) -> str:
    """Return what to do about tags of another scheme."""
    named = [tag for tag in column if tag != "O"]
    if any(re.fullmatch(r"\S+-[BI]", tag) for tag in named):
        return "These tags have their letter at the end; write it first: B-PER, not PER-B."
    if named and all(re.fullmatch(r"[A-Z][A-Za-z_]*", tag) for tag in named):
        return (
            "These types have no B- or I-, so entities that touch cannot be told apart; write "
            "B-TYPE at the first word of each and I-TYPE at the others, or choose another column "
            "with --tags."
        )
    return "Choose another column with --tags."


def _begun(tag: str, last: str) -> str:
    """Return a tag with `B-` if it begins an entity."""
    return f"B-{tag[2:]}" if tag.startswith("I-") and tag[2:] != last[2:] else tag


def roles(sentence: Sentence, first: int, last: int) -> Iterator[tuple[int, list[str]]]:
    """Yield the place of each predicate, from 0, and its roles as IOB2 tags.

    Args:
        sentence: a sentence with one column for each of its predicates.
        first: the first of these columns, as in `Sentence.column`.
        last: the last of them.

    Raises:
        UserError: a column has no brackets, or no (V*) at its predicate.
    """
    width = len(sentence.lines[0])
    stop = last if last > 0 else width + 1 + last
    for number in range(first if first > 0 else width + 1 + first, stop + 1):
        found = _spans(sentence, sentence.column(number))
        if "B-V" not in found:
            raise UserError(f"{sentence.where[0]}: column {number} of the sentence has no (V*).")
        yield found.index("B-V"), found


def _spans(sentence: Sentence, column: Sequence[str]) -> list[str]:
    """Return bracketed spans as IOB2 tags: `(A0*`, `*`, `*)`, or `*A0)` of CoNLL-2004."""
    found, inside = [], ""
    for where, cell in zip(sentence.where, column, strict=True):
        brackets = _BRACKETS.fullmatch(_ALONE.sub(r"(\1*)", cell))
        begins, ends = brackets.groups() if brackets else (None, None)
        if not brackets or (begins and inside) or (ends and not begins and not inside):
            raise UserError(
                f"{where}: {shown(cell)} opens or closes no span; expected *, (TYPE*, *) or "
                "(TYPE*)."
            )
        inside = begins or inside
        found.append(f"{'B' if begins else 'I'}-{inside}" if inside else "O")
        inside = "" if ends else inside
    if inside:
        raise UserError(f"{sentence.where[-1]}: span ({inside}* has no end in its sentence.")
    return found
