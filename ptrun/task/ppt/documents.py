"""A corpus as a stream of documents, each a list of lines; memory holds one document at a time.

| corpus              | documents                                                                  |
|---------------------|----------------------------------------------------------------------------|
| `pocket`            | the training corpus of the pocket backbones, one sentence per line         |
| `FILE.jsonl[.gz]`   | one document per row, in the row's `field`                                 |
| `FILE.txt[.gz]`     | one line per line, with a blank line between documents                     |
| `FOLDER`            | its `train` file, or all such files, sorted by name                        |

A line is a line of the corpus (PPT's code: a paragraph), or a sentence with `unit=sentence`.
Documents of more than 5,000,000 characters are left out, as in PPT's code.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import groupby
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
    """Yield the documents of a corpus in order; those without text are left out.

    Raises:
        UserError: there is no such corpus, or a row cannot be read.
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
    """Return the files of a corpus other than `pocket`.

    Raises:
        UserError: there are none.
    """
    path = Path(corpus).expanduser()
    inside = sorted(path.iterdir()) if path.is_dir() else [path]
    matching = [file for file in inside if file.is_file() and file.name.endswith(_FORMS)]
    if not matching:
        raise UserError(
            f"task.source.corpus={corpus}: no corpus there; give `pocket`, a file "
            f"({names(_FORMS)}), or a folder with such files."
        )
    return [file for file in matching if file.name.split(".")[0] == "train"] or matching


def digest(corpus: str) -> str:
    """Return what identifies the content of a corpus."""
    if corpus == "pocket":
        return corpus
    return " ".join(_file_digest(f, f.stat().st_size, f.stat().st_mtime_ns) for f in files(corpus))


@cache
def _file_digest(file: Path, _size: int, _time: int) -> str:
    """Return 16 hex over a file; cached, since a run needs it for each part of its task."""
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
                f"{where}: field {field!r} is {shown(text)}; expected text. This row has "
                f"{names(sorted(row))}.\nType task.source.field=NAME."
            )
        yield text


def _paragraphs(file: Path) -> Iterator[str]:
    """Yield the texts between blank lines."""
    for filled, lines in groupby((text.strip() for _, text in text_lines(file)), key=bool):
        if filled:
            yield "\n".join(lines)


def _lines(text: str, unit: Unit) -> Document:
    lines: Iterable[str] = text.split("\n")
    if unit == "sentence":
        lines = (part for line in lines for part in _SENTENCE.split(line))
    return [line.strip() for line in lines if line and not line.isspace()]
