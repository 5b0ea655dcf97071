"""Named entities and semantic roles from column files, as rows of a tagging task.

Roles are read from bracketed columns (CoNLL-2005, CoNLL-2012), or from the lines of P-tuning v2's
files (zenodo 6318701): the predicate's index, the words, `|||`, and a tag for each word.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ptrun.errors import UserError, names, shown
from ptrun.importing.data import MadeFile, Record, TaggingFields, tagging_files
from ptrun.task.lines import text_lines
from ptrun.task.tag_schemes import iob2, marks_spans

# Files of columns, as the CoNLL tasks have them: a word a line, blank lines between sentences.

_NO_WORD = re.compile(r"-DOCSTART-|#begin document|#end document|#doc \d+\s*$")
_BRACKETS = re.compile(r"(?:\(([^()*\s]+))?\*([^()*\s]*\))?")
_ALONE = re.compile(r"\(([^()*\s]+)\)")  # CoNLL-2012 writes (GPE) for an entity of one word
_END = re.compile(r"O|[BIESULM]-\S+|[_*-]|\S*[()*]\S*")  # of a line that is a word


@dataclass(frozen=True)
class Sentence:
    """The lines of a sentence: their places for errors, and their columns, equally many."""

    where: Sequence[str]
    lines: Sequence[Sequence[str]]

    def column(self, number: int) -> list[str]:
        """Return a column, counted from 1, or from -1 at the end."""
        width = len(self.lines[0])
        if not -width <= number <= width or number == 0:
            raise UserError(
                f"{self.where[0]}: {shown(' '.join(self.lines[0]))} has {width} columns, so none "
                f"is number {number}; choose others with --words, --tags and --roles."
            )
        place = number - 1 if number > 0 else number
        return [line[place] for line in self.lines]


def sentences(file: Path) -> Iterator[Sentence]:
    """Yield the sentences of a file; columns are separated by tabs, or else by spaces."""
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
    """Return a column of tags of any scheme, or of brackets, as IOB2."""
    column = sentence.column(number)
    if all("*" in tag or _ALONE.fullmatch(tag) for tag in column):
        return _spans(sentence, column)
    for where, tag in zip(sentence.where, column, strict=True):
        if not marks_spans([tag]):
            raise UserError(
                f"{where}: column {number} is {shown(tag)}, no tag; expected O, B-TYPE, I-TYPE (or "
                "BIOES, BILOU, BMES) or brackets such as (TYPE*).\nAnother column is --tags N."
            )
    return iob2(column)


def roles(sentence: Sentence, left: int, right: int) -> Iterator[tuple[int, list[str]]]:
    """Yield the place of each predicate, from 0, and its roles as IOB2 tags.

    `left` and `right` are the first and the last column of them, as in `Sentence.column`.
    """
    width = len(sentence.lines[0])
    stop = right if right > 0 else width + 1 + right
    for number in range(left if left > 0 else width + 1 + left, stop + 1):
        tagged = _spans(sentence, sentence.column(number))
        if "B-V" not in tagged:
            raise UserError(f"{sentence.where[0]}: column {number} of the sentence has no (V*).")
        yield tagged.index("B-V"), tagged


def _spans(sentence: Sentence, column: Sequence[str]) -> list[str]:
    """Return bracketed spans as IOB2 tags: `(A0*`, `*`, `*)`, or `*A0)` of CoNLL-2004."""
    tagged, inside = [], ""
    for where, cell in zip(sentence.where, column, strict=True):
        brackets = _BRACKETS.fullmatch(_ALONE.sub(r"(\1*)", cell))
        begins, ends = brackets.groups() if brackets else (None, None)
        if not brackets or (begins and inside) or (ends and not begins and not inside):
            raise UserError(
                f"{where}: {shown(cell)} opens or closes no span; expected *, (TYPE*, *) or "
                "(TYPE*)."
            )
        inside = begins or inside
        tagged.append(f"{'B' if begins else 'I'}-{inside}" if inside else "O")
        inside = "" if ends else inside
    if inside:
        raise UserError(f"{sentence.where[-1]}: span ({inside}* has no end in its sentence.")
    return tagged


_DIGITS = 10  # no sentence has so many words; Python refuses to read thousands of digits


@dataclass(frozen=True)
class Columns:
    """The columns to read, from 1, or from -1 at the end; `roles` are the first and the last."""

    words: int = 1
    tags: int = -1
    roles: tuple[int, int] | None = None


def import_conll(
    source: Path,
    *,
    words: int = 1,
    tags: int = -1,
    roles: tuple[int, int] | None = None,
    **chosen: Any,
) -> tuple[list[MadeFile], dict[Path, str]]:
    """Return the files of a task of entities or of roles, and its options if it is new.

    Args beyond those of `Columns`: `task`, `train`, `dev` and `test` of `tagging_files`.
    """
    return tagging_files(source, partial(rows, Columns(words, tags, roles)), **chosen)


def rows(columns: Columns, file: Path, fields: TaggingFields) -> Iterator[Record]:
    """Yield the rows of a file of columns, for a task of entities or of roles."""
    return (_predicates if fields.predicate else _entities)(file, fields, columns)


def _entities(file: Path, fields: TaggingFields, columns: Columns) -> Iterator[Record]:
    for sentence in sentences(file):
        tagged = tags(sentence, columns.tags)
        for where, tag in zip(sentence.where, tagged, strict=True):
            if fields.entities and tag != "O" and tag[2:] not in fields.entities:
                raise UserError(
                    f"{where}: {shown(tag)} is of no type of the task: {names(fields.entities)}. "
                    "Choose another column with --tags, or another --task."
                )
        words = sentence.column(columns.words)
        if "" in words:
            raise UserError(f"{sentence.where[words.index('')]}: a tag without a word.")
        yield {fields.tokens: words, fields.tags: tagged}


def _predicates(file: Path, fields: TaggingFields, columns: Columns) -> Iterator[Record]:
    rows = _lines(file)
    if columns.roles is not None:
        rows = (
            (sentence.column(columns.words), *found)
            for sentence in sentences(file)
            for found in roles(sentence, *columns.roles)
        )
    for words, place, tagged in rows:
        yield {fields.tokens: words, str(fields.predicate): place, fields.tags: tagged}


def _lines(file: Path) -> Iterator[tuple[list[str], int, list[str]]]:
    """Yield the words, predicate and tags of each line of P-tuning v2's files."""
    for where, text in text_lines(file):
        if not text.strip():
            continue
        left, bar, right = text.partition("|||")
        index, *words = left.split() or [""]
        tagged = right.split()
        if not bar:
            raise UserError(
                f"{where}: no |||. For files of columns name those of the roles, as in "
                "--words 4 --roles 12:-2 for CoNLL-2012."
            )
        place = int(index) if index.isdecimal() and len(index) < _DIGITS else -1
        if not 0 <= place < len(words) == len(tagged):
            raise UserError(
                f"{where}: predicate {shown(index)}, {len(words)} words and {len(tagged)} tags; "
                "expected the index of a word and as many tags as words."
            )
        yield words, place, tagged
