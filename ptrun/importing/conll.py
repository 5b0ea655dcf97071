"""Entities, roles and labels of words from files with one word a line, or one word a row.

Roles are read from bracketed columns (CoNLL-2005, CoNLL-2012), or from the lines of P-tuning v2's
files (zenodo 6318701): the predicate's index, the words, `|||`, and a tag for each word.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import cast

from ptrun.errors import UserError, names, shown
from ptrun.importing.data import Words
from ptrun.task.lines import text_lines, top_of
from ptrun.task.source import Account
from ptrun.task.table import Given, Quoting, Table, table

# Files of columns, as the CoNLL tasks have them: a word a line, blank lines between sentences.

_NO_WORD = re.compile(r"-DOCSTART-|#begin document|#end document|#doc \d+\s*$")
_BRACKETS = re.compile(r"(?:\(([^()*\s]+))?\*([^()*\s]*\))?")
_ALONE = re.compile(r"\(([^()*\s]+)\)")  # CoNLL-2012 writes (GPE) for an entity of one word
_END = re.compile(r"O|[BIESULM]-\S+|[_*-]|\S*[()*]\S*")  # of a line that is a word
_NODE = re.compile(r"\d+([-.])\d+")  # in CoNLL-U: words 2-3 as they are written, or a node 4.1
_NODES = {"-": "left out: a multiword line (2-3)", ".": "left out: an empty node (4.1)"}
_U = 10  # columns of CoNLL-U
_PIPED = re.compile(r"\S+\|(O|[BIESUL]-[^\s|]+)")
_NAMES = [
    re.compile("words?|tokens?|forms?"),
    re.compile("(ner|iob|bio|entity)?(tag|label)s?|ner|iob|bio|entity|entities"),
    re.compile("sent(ence)?s?(id|idx|index|no|nr|num|number)?"),
]
"""The names of columns of words, tags and sentences, in small letters and digits."""


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


def sentences(
    file: Path, account: Account, words: int | None, has_tabs: bool
) -> Iterator[Sentence]:
    """Yield the sentences of a file; columns are separated by tabs, or else by spaces."""
    where: list[str] = []
    lines: list[list[str]] = []
    for place, text in text_lines(file):
        columns = _columns(text)
        is_word = columns and _END.fullmatch(columns[-1]) and ("\t" in text or not has_tabs)
        if columns and columns[0].startswith("#") and not lines and not is_word:
            continue  # a comment, as MultiCoNER, GermEval and CoNLL-U have them
        is_u = words not in (None, 1) or len(columns) == _U
        if is_u and columns and (node := _NODE.fullmatch(columns[0])):
            account.noted[_NODES[node[1]]] += 1
        elif columns and not _NO_WORD.match(text):
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


def _roles(sentence: Sentence, left: int, right: int) -> Iterator[tuple[int, list[str]]]:
    """Yield the place of each predicate, from 0, and its roles as IOB2 tags.

    `left` and `right` are the first and the last column of them, as in `Sentence.column`.
    """
    width = len(sentence.lines[0])
    if left < 0:
        sentence.column(left)  # refuses a number beyond the first column
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


def conll(
    file: Path,
    account: Account,
    words: int | str | None = None,
    tags: int | str | None = None,
    sentence: int | str | None = None,
    roles: tuple[int, int] | None = None,
    quoting: Quoting = None,
) -> Iterator[Words]:
    """Yield the sentences of a file of columns, or of a table with one word a row.

    `words`, `tags` and `sentence` are numbers of columns, from 1, or from -1 at the end, or names
    in a table. None is 1 and -1, in CoNLL-U 2 and 4, and in a table the first that is named so. A
    cell of `sentence` begins a sentence. `roles` are the first and the last column of roles: a row
    is yielded for each predicate. `quoting` is that of a table.
    """
    if columns := _header(file, Given(quoting=quoting), words, tags, sentence):
        yield from _cells(*columns)
        return
    top = top_of(file).splitlines()
    lines = [line.split() for line in top]
    if any(len(line) > 1 and all(map(_PIPED.fullmatch, line)) for line in lines):
        for where, text in text_lines(file):  # spaCy's .iob: `Ann|NNP|B-PER`, or `Ann|B-PER`
            parts = [word.split("|") for word in text.split()]
            if any(len(part) not in (2, 3) or len(part) != len(parts[0]) for part in parts):
                raise UserError(f"{where}: {shown(text.strip())}; expected WORD|TAG in each place.")
            if parts:
                yield Words(where, [part[0] for part in parts], [part[-1] for part in parts])
        return
    if roles is None and any("|||" in line and line[0].isdecimal() for line in lines):
        yield from _predicates(file)
        return
    has_tabs = any("\t" in line and line[0] != "#" for line in top)
    words, tags = cast("int | None", words), cast("int | None", tags)  # names are of tables
    for block in sentences(file, account, words, has_tabs):
        if len(block.lines[0]) == 1:
            raise UserError(
                f"{block.where[0]}: {shown(block.lines[0][0])} is one column; expected a word and "
                "its tag, separated by a tab or spaces. A CSV names its columns in its first line."
            )
        is_u = len(block.lines[0]) == _U and block.lines[0][0].isdecimal()
        tokens = block.column(words or (2 if is_u else 1))
        if roles is not None:
            for place, labels in _roles(block, *roles):
                yield Words(block.where, tokens, labels, place)
            continue
        labels = block.column(tags or (4 if is_u else -1))
        if is_u and "_" in labels:
            account.left_out[
                f"a word without a tag (_ in column {tags or 4}; --tags chooses another)"
            ] += 1
            continue
        if all("*" in tag or _ALONE.fullmatch(tag) for tag in labels):
            labels = _spans(block, labels)
        yield Words(block.where, tokens, labels)


# Tables with one word a row, as Kaggle's ner_dataset.csv and simpletransformers have them.


def _header(
    file: Path, form: Given, *typed: int | str | None
) -> tuple[Table, list[str | None]] | None:
    """Return a table and its columns of words, tags and sentences, if its first line names them."""
    is_named = any(isinstance(place, str) for place in typed)
    try:
        cells = table(file, form)
        columns = cells.columns
    except UserError:
        if is_named:
            raise
        return None  # columns of another kind
    fitting = [
        [name for name in columns if pattern.fullmatch(re.sub(r"[\W_]", "", name.lower()))]
        for pattern in _NAMES
    ]
    if not is_named and not (fitting[0] and (fitting[1] or fitting[2])):
        return None
    numbered: dict[int | str, str] = dict(enumerate(columns, start=1))
    numbered |= dict(enumerate(columns, start=-len(columns)))
    return cells, [
        numbered.get(place, str(place)) if place else fits[0] if len(fits) == 1 else None
        for place, fits in zip(typed, fitting, strict=True)
    ]


def _cells(cells: Table, columns: Sequence[str | None]) -> Iterator[Words]:
    """Yield the sentences of a table; a blank row, or a new cell of its column, begins one."""
    for option, column in zip(("--words", "--tags", "--sentence"), columns, strict=True):
        if column not in cells.columns and (column or option != "--sentence"):
            allowed = names(cells.columns)
            raise UserError(f"{cells.file}: name the column, {option} NAME: one of {allowed}.")

    def numbered() -> Iterator[tuple[int, str, str, str]]:
        """Yield the number of the sentence of each row, its place, its word and its tag."""
        number, known, sentence, end = 0, set[str](), "", 0
        for place, data in cells.rows([column for column in columns if column]):
            values = [data.get(str(column)) for column in columns]
            if any(isinstance(value, list) for value in values):
                raise UserError(
                    f"{place}: a list; a row has one word. Sentences in rows need no import: type"
                    f"\nptrun task=csv task.train={cells.file} task.text={columns[0]} "
                    f"task.label={columns[1]}"
                )
            token, tag, name = ("" if value is None else str(value) for value in values)
            line = int(place.rpartition(":")[2]) if cells.kind == "cells" else 0
            is_blank = not f"{token}{tag}".strip()
            begins = name not in ("", sentence) if columns[2] else is_blank or line > end + 1
            if begins and columns[2] and name in known:
                raise UserError(
                    f"{place}: sentence {shown(name)} was above, and another one stands between. "
                    "Sort the rows by this column."
                )
            known.add(sentence := name or sentence)
            number, end = number + begins, line + f"{token}{tag}".count("\n")
            if not is_blank:
                yield number, place, token, tag

    count = 0
    for _, rows in groupby(numbered(), itemgetter(0)):
        _, where, tokens, tags = zip(*rows, strict=True)
        yield Words(where, list(tokens), tags)
        count += 1
    if columns[2] is None and count == 1:
        raise UserError(
            f"{cells.file}: no line is blank, so name the column that says where a sentence begins,"
            f" --sentence NAME: one of {names(cells.columns)}."
        )


# The lines of P-tuning v2's files.

_DIGITS = 10  # no sentence has so many words; Python refuses to read thousands of digits


def _predicates(file: Path) -> Iterator[Words]:
    """Yield the words, predicate and tags of each line: its index, the words, `|||`, the tags."""
    for where, text in text_lines(file):
        if not text.strip():
            continue
        left, bar, right = text.partition("|||")
        index, *words = left.split() or [""]
        tags = right.split()
        place = int(index) if index.isdecimal() and len(index) < _DIGITS else -1
        if not bar or not 0 <= place < len(words) == len(tags):
            raise UserError(
                f"{where}: predicate {shown(index)}, {len(words)} words and {len(tags)} tags; "
                "expected the index of a word, the words, |||, and as many tags as words."
            )
        yield Words(where, words, tags, place)
