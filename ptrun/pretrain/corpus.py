"""Unlabelled documents as lists of sentences, from the pocket world or a local folder."""

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path

from ptrun.errors import UserError
from ptrun.pocket import corpus as pocket

_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")


def documents(corpus: str, split: str) -> Iterator[list[str]]:
    """Yield the documents of a split, each its sentences in order.

    Raises:
        UserError: the folder has no such split, or a line is not `{"doc": text}`.
    """
    if corpus == "pocket":
        yield from pocket.documents(split)
        return
    file = _file(Path(corpus), split)
    opener = gzip.open if file.suffix == ".gz" else open
    with opener(file, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            yield [part for part in _SENTENCE.split(_text(line, file, number)) if part.strip()]


def _file(folder: Path, split: str) -> Path:
    for suffix in (".jsonl", ".jsonl.gz"):
        if (file := folder / f"{split}{suffix}").is_file():
            return file
    raise UserError(f"corpus={folder}: no {split}.jsonl or {split}.jsonl.gz there.")


def _text(line: str, file: Path, number: int) -> str:
    try:
        text = json.loads(line)["doc"]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise UserError(f'{file}, line {number}: expected {{"doc": "text"}}.') from error
    return str(text)
