"""A corpus without labels: its documents, blocks of them, and what is made from it."""

import hashlib
import json
import math
import random
import re
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from itertools import accumulate, groupby, islice
from pathlib import Path
from typing import Any, Literal

from ptrun.config.compose import Composed
from ptrun.errors import UserError, names
from ptrun.files import below
from ptrun.method.tokenized import TOKENS
from ptrun.task.lines import json_lines, text_lines
from ptrun.task.source import Made, positive

# A corpus as a stream of documents, each a list of lines; memory holds one document at a time.
#
# | corpus              | documents                                                                |
# |---------------------|--------------------------------------------------------------------------|
# | `pocket`            | the training corpus of the pocket backbones, one sentence per line       |
# | `FILE.jsonl[.gz]`   | one document per row, in the row's `field`                               |
# | `FILE.txt[.gz]`     | one line per line, with a blank line between documents                   |
# | `FOLDER`            | its `train` file, or all such files, sorted by name                      |
#
# A line is a line of the corpus (PPT's code: a paragraph), or a sentence with `unit=sentence`.
# Documents of more than 5,000,000 characters are left out, as in PPT's code.

Unit = Literal["line", "sentence"]
Document = list[str]

_LONGEST = 5_000_000  # characters
_FORMS = (".jsonl", ".jsonl.gz", ".txt", ".txt.gz")
_SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])\s*")  # noqa: RUF001  full-width is meant


def documents(corpus: str, *, field: str = "doc", unit: Unit = "line") -> Iterator[Document]:
    """Yield the documents of a corpus in order; those without text are left out."""
    if corpus == "pocket":
        from ptrun.pocket.corpus import documents as pocket

        yield from pocket()
        return
    for file in files(corpus):
        for text in _texts(file, field):
            if len(text) <= _LONGEST and (lines := _lines(text, unit)):
                yield lines


def files(corpus: str) -> list[Path]:
    """Return the files of a corpus other than `pocket`."""
    path = Path(corpus).expanduser()
    inside = sorted(path.iterdir()) if path.is_dir() else [path]
    matching = [file for file in inside if file.is_file() and file.name.endswith(_FORMS)]
    if not matching:
        raise UserError(f"task.source.corpus={corpus}: no corpus there; give {names(_FORMS)}.")
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
    """Yield the documents of a file: texts between blank lines, or the field of each row."""
    if ".txt" in file.suffixes:
        for is_text, lines in groupby((text.strip() for _, text in text_lines(file)), key=bool):
            if is_text:
                yield "\n".join(lines)
        return
    for where, row in json_lines(file):
        text = row.get(field)
        if not isinstance(text, str):
            has = names(sorted(row))
            raise UserError(
                f"{where}: no text {field!r}; it has {has}. Type task.source.field=NAME."
            )
        yield text


def _lines(text: str, unit: Unit) -> Document:
    lines: Iterable[str] = text.split("\n")
    if unit == "sentence":
        lines = (part for line in lines for part in _SENTENCE.split(line))
    return [line.strip() for line in lines if line and not line.isspace()]


# Documents of one part of a corpus, each together with other documents.
#
# PPT's code draws the other documents from shuffled copies of the whole corpus. Here they come from
# the same block of 1,000 usable documents, so memory use does not grow with the corpus. Shuffle the
# corpus once if neighbouring documents are similar.

_DOCUMENTS = 1_000
_CHARACTERS = 20_000_000  # a block of long documents ends earlier


@dataclass(frozen=True)
class Need:
    """What a kind of example requires of documents.

    Args:
        lines: fewest lines of a document.
        characters, words: fewest of every line. One shorter line rejects the whole document:
            without it, the lines around it would look like neighbours.
        others: how many other documents an example uses.
    """

    lines: int
    characters: int
    words: int
    others: int

    def met(self, document: Document) -> bool:
        """Return whether a document can be used."""
        return len(document) >= self.lines and all(
            len(line) >= self.characters and has_words(line, self.words) for line in document
        )


@dataclass(frozen=True)
class Case:
    """A document, other documents, and a generator seeded by its number in the corpus."""

    number: int
    document: Document
    others: Sequence[Document]
    rng: random.Random


def part_of(document: Document, shares: Sequence[int]) -> int:
    """Return the part of a document; its text decides, so equal documents share a part."""
    hashed = hashlib.blake2b("\n".join(document).encode("utf-8", "surrogatepass"), digest_size=8)
    place = int.from_bytes(hashed.digest(), "big") % sum(shares)
    return bisect_right(list(accumulate(shares)), place)


def cases(usable: Iterable[Document], others: int, seed: str) -> Iterator[Case]:
    """Yield each document with others of its block; a block with too few is left out."""
    number = 0
    for block in blocks(usable, characters=_CHARACTERS, count=_DOCUMENTS):
        for place, document in enumerate(block):
            if len(block) > others:
                rng = random.Random(f"{seed}:{number}")
                drawn = rng.sample(range(len(block) - 1), others)
                beside = [block[other + (other >= place)] for other in drawn]
                yield Case(number, document, beside, rng)
            number += 1


def blocks(
    usable: Iterable[Document], *, characters: int, count: float = math.inf
) -> Iterator[list[Document]]:
    """Yield blocks of `count` documents; a block of more than `characters` ends earlier."""
    block, size = list[Document](), 0
    for document in usable:
        block.append(document)
        size += sum(map(len, document))
        if len(block) == count or size > characters:
            yield block
            block, size = [], 0
    if block:
        yield block


# Words of a text in any script, for least lengths; a Chinese or Japanese character is one word.
#
# PPT's code counts tokens of its model. A task has no tokenizer and counts words instead.

_CHARACTER = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
_WORD = re.compile(rf"{_CHARACTER.pattern}|[^\s{_CHARACTER.pattern[1:]}+")


def has_words(text: str, least: int) -> bool:
    """Return whether a text has at least this many words."""
    if text.isascii() or not _CHARACTER.search(text):  # only spaces separate words
        return len(text.split(None, least)) >= least
    return any(True for number, _ in enumerate(_WORD.finditer(text), start=1) if number == least)


# What all examples made from a corpus share: their number, and the documents they come from.

SPLITS = ("train", "validation", "test")


@dataclass(frozen=True, kw_only=True)
class MadeExamples(Made):
    """The keys of a task's `source` that all kinds of made examples have.

    Args:
        corpus: as in `ptrun.papers.corpus`.
        examples: largest number of examples of each split, the first of the corpus.
        field: the field with the text, in JSON rows.
        unit: what a line is.
        shares: shares of train, validation and test. PPT has 949, 50 and 1; a test share of 1 in
            1,000 is too small for a small corpus.
        store: the folder that keeps examples and tokens, up to millions; a plan fills it in.
    """

    corpus: str
    examples: Mapping[str, int]
    field: str = "doc"
    unit: Unit = "line"
    shares: Sequence[int] = (900, 50, 50)
    store: str | None = None

    def __post_init__(self) -> None:
        if set(self.examples) != set(SPLITS) or not positive(self.examples.values()):
            raise UserError(
                f"task.source.examples is {dict(self.examples)}; give a number above 0 for each "
                f"of {', '.join(SPLITS)}."
            )
        if len(self.shares) != len(SPLITS) or not positive(self.shares):
            shares = list(self.shares)
            raise UserError(f"task.source.shares is {shares}; give three numbers above 0.")

    @classmethod
    def completed(cls, composed: Composed) -> Mapping[str, Any]:
        """Return the task with the folder of its examples."""
        source = {**composed.task["source"], "store": str(below(composed.outputs, TOKENS))}
        return {**composed.task, "source": source}

    def rows(self, split: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the rows of a split, each with its place for error messages."""
        number = 0
        for number, row in enumerate(islice(self.every(split), self.examples[split]), start=1):
            yield f"{self.corpus}/{split} example {number}", row
        if not number:
            raise UserError(f"task.source.corpus={self.corpus}: {self.none(split)}")

    def digest(self) -> str:
        """Return what identifies the examples, independent of the corpus's path."""
        return self.identity(("store",))

    def identity(self, left_out: Collection[str]) -> str:
        """Return all keys except those left out as JSON, with the corpus's content hash."""
        keys = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in left_out}
        return json.dumps({**keys, "corpus": digest(self.corpus)}, sort_keys=True, default=list)

    def documents(self) -> Iterator[Document]:
        """Yield the documents of the corpus."""
        return documents(self.corpus, field=self.field, unit=self.unit)

    @abstractmethod
    def every(self, split: str) -> Iterator[dict[str, Any]]:
        """Yield all rows that the corpus gives for a split."""

    @abstractmethod
    def none(self, split: str) -> str:
        """Return the error message for a split without examples."""
