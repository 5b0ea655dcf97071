"""WebAnno's TSV 3, which INCEpTION writes too, as words and tags of one layer.

A line has a word and a cell for each feature of each layer, as the first lines say: `_` is nothing,
`*` a span without a value, `PER[1]` a span of all words with this number, and `|` stands between
several spans. No span is cut: a sentence that ends inside one goes on with the next.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, cast

from ptrun.errors import UserError, shown
from ptrun.importing.data import Words, cut
from ptrun.task.lines import text_lines
from ptrun.task.source import Account

_LAYER = re.compile(r"#T_(SP|RL|CH)=(?:[^|]*\.)?([^|]*)\|?(.*)")
_WORD = re.compile(r"(\d+)-\d+(\.\d+)?\t\d+-\d+\t([^\t]*)\t?(.*)")
_VALUES = re.compile(r"(?:\\.|[^\\|])+")
_VALUE = re.compile(r"((?:\\.|[^\\\[])*)(?:\[(\d+)\])?")
_READ = "words with {0.layer} {0.name}"
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r"}


class _Feature(NamedTuple):
    """A column of cells; a layer without features has one, without a name."""

    layer: str
    name: str
    marks_spans: bool

    def has_value(self, cell: str) -> bool:
        """Return whether a cell has a value, or marks a span of a layer without features."""
        return cell[0] != "_" and (cell[0] != "*" or not self.name)


def webanno(
    file: Path, account: Account, layer: str | None = None, feature: str | None = None
) -> Iterator[Words]:
    """Yield the sentences of a file; other layers than the one that is read are counted."""
    # 1) the columns, and the one to read
    columns, words = _read(file)
    spans = [column for column in columns if column.marks_spans]
    fitting = [c for c in spans if layer in (None, c.layer) and feature in (None, c.name)]
    used = {
        column
        for _, _, cells in words
        for column, cell in zip(columns, cells, strict=False)
        if column in fitting and column.has_value(cell)
    }
    used |= {column for column in spans if account.noted[_READ.format(column)]}  # in other files
    if not fitting or len(used) > 1:
        typed = [f"--layer {c.layer} --feature {c.name}" for c in spans if c in used or not used]
        allowed = " or ".join(typed) or "another file"
        raise UserError(f"{file}: one layer of spans is read; type {allowed}.")
    # 2) the words of each span
    marked = defaultdict[tuple[str, str], list[int]](list)
    numbers, places, tokens = list[str](), list[str](), list[str]()
    for where, match, cells in words:
        number, part, token, _ = match.groups()
        if part is None:
            numbers.append(number)
            places.append(where)
            tokens.append(_plain(token))
        for column, cell in zip(columns, cells, strict=False):
            if column not in used and column.has_value(cell):
                account.noted[f"left out: {_READ.format(column)}"] += 1
            for value in _VALUES.findall(cell) if cell != "_" and column in used else []:
                account.noted[_READ.format(column)] += 1
                label, span = cast("re.Match[str]", _VALUE.match(value)).groups()
                if label == "*" and column.name:
                    account.noted[f"left out: words without {column.name}"] += 1
                    continue
                if part:
                    raise UserError(f"{where}: {value} marks a part of a word. Mark whole words.")
                label = column.layer if label == "*" else _plain(label)
                marked[label, span or where].append(len(tokens) - 1)
    # 3) their tags, and sentences
    tags = ["O"] * len(tokens)
    for (label, _), indices in marked.items():
        for place, index in enumerate(indices):
            if tags[index] != "O":
                raise UserError(
                    f"{places[index]}: {tags[index][2:]} and {label} overlap; a word has one tag. "
                    "Keep one."
                )
            tags[index] = f"{'I' if place else 'B'}-{label}"
    for sentence in cut(str(file), tokens, tags, numbers):
        if not all(column.layer == "POS" for column in used or fitting):
            yield sentence
        elif "O" not in sentence.tags:
            yield replace(sentence, tags=[tag[2:] for tag in sentence.tags])
        else:
            account.left_out["a word without a tag"] += 1


def _read(file: Path) -> tuple[list[_Feature], list[tuple[str, re.Match[str], list[str]]]]:
    """Return the columns of a file, and of each word its place, its parts and its cells."""
    columns, words = list[_Feature](), []
    for number, (where, line) in enumerate(text_lines(file)):
        line = line.rstrip("\r\n")
        if not number and not line.startswith("#FORMAT=WebAnno TSV 3"):
            raise UserError(
                f"{where}: {shown(line)}; expected #FORMAT=WebAnno TSV 3. Export WebAnno TSV v3."
            )
        if match := _LAYER.match(line):
            kind, layer, features = match.groups()
            before = ""
            for name in features.split("|"):
                role = "ROLE_" in (name[:5], before[:5])  # and the type of its target
                columns.append(_Feature(layer, name, kind == "SP" and not role))
                before = name
        elif match := _WORD.fullmatch(line):
            words.append((where, match, [cell or "_" for cell in match[4].split("\t")]))
        elif line.strip() and line[0] != "#":
            raise UserError(f"{where}: {shown(line)} is no word of WebAnno TSV 3.")
    return columns, words


def _plain(text: str) -> str:
    """Return a text without escapes."""
    return re.sub(r"\\(.)", lambda match: _CONTROLS.get(match[1], match[1]), text)
