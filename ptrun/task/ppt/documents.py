"""A corpus as a stream of documents, each its lines in order; nothing is held but one document.

| corpus              | documents                                                                  |
|---------------------|----------------------------------------------------------------------------|
| `pocket`            | those the pocket backbones learned from, sentence by sentence              |
| `FILE.jsonl[.gz]`   | one a row, a text in the row's `field`                                     |
| `FILE.txt[.gz]`     | one line a line, a blank line between documents                            |
| `FOLDER`            | its `train` file, or all such files in the order of their names            |

A line is what the corpus has as one (PPT's code: a paragraph), or with `unit=sentence` a sentence
of it. Documents of more than 5,000,000 characters are left out, as in PPT's code.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Literal

from ptrun.errors import UserError
from ptrun.task.lines import json_lines, text_lines
from ptrun.task.shown import names, shown

Unit = Literal["line", "sentence"]
Document = list[str]

_LONGEST = 5_000_000  # characters
_FORMS = (".jsonl", ".jsonl.gz", ".txt", ".txt.gz")
_SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])\s*")  # noqa: RUF001  full-width is meant


def documents(corpus: str, *, field: str = "doc", unit: Unit = "line") -> Iterator[Document]:
    """Yield the documents of a corpus that have text, in its order.

    Raises:
        UserError: there is no such corpus, or a row of it cannot be read.
    """
    if corpus == "pocket":
        from ptrun.pocket.corpus import documents as pocket

        yield from pocket("train")
        return
    for file in files(corpus):
        for text in _texts(file, field):
            if len(text) <= _LONGEST and (lines := _lines(text, unit)):
                yield lines


def files(corpus: str) -> list[Path]:
    """Return the files of a corpus that is not `pocket`.

    Raises:
        UserError: there are none.
    """
    there = Path(corpus).expanduser()
    if there.is_file() and there.name.endswith(_FORMS):
        return [there]
    inside = sorted(there.iterdir()) if there.is_dir() else []
    found = [file for file in inside if file.name.endswith(_FORMS)]
    if not found:
        raise UserError(
            f"task.source.corpus={corpus}: no corpus there; give `pocket`, a file "
            f"({names(_FORMS)}), or a folder with such files."
        )
    return [file for file in found if file.name.split(".")[0] == "train"] or found


def digest(corpus: str) -> str:
    """Return what identifies the content of a corpus."""
    if corpus == "pocket":
        return corpus
    return " ".join(_file_digest(f, f.stat().st_size, f.stat().st_mtime_ns) for f in files(corpus))


@cache
def _file_digest(file: Path, _size: int, _time: int) -> str:
    """Return 16 hex over a file; a run asks for each part of its task."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()[:16]


def _texts(file: Path, field: str) -> Iterator[str]:
    if ".txt" in file.suffixes:
        yield from _paragraphs(file)
        return
    for where, row in json_lines(file):
        text = row.get(field)
        if not isinstance(text, str):
            raise UserError(
                f"{where}: field {field!r} is {shown(text)}, no text; this row has "
                f"{names(sorted(row))}.\nType task.source.field=NAME."
            )
        yield text


def _paragraphs(file: Path) -> Iterator[str]:
    """Yield the texts between blank lines."""
    held: list[str] = []
    for _, text in text_lines(file):
        if line := text.strip():
            held.append(line)
        elif held:
            yield "\n".join(held)
            held = []
    if held:
        yield "\n".join(held)


def _lines(text: str, unit: Unit) -> Document:
    lines: Iterable[str] = text.split("\n")
    if unit == "sentence":
        lines = (part for line in lines for part in _SENTENCE.split(line))
    return [line.strip() for line in lines if line and not line.isspace()]
