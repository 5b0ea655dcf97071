"""Lines of a corpus labelled by a classifier: PPT pre-trains prompts for single texts on them.

The classifier is another run, named by `task.source.labeller`. `ptrun.runs.finished` runs it and
writes the labelled lines to shards. This file selects the lines to label and reads the shards.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, islice, takewhile
from pathlib import Path
from typing import Any

from ptrun.errors import UserError
from ptrun.task.corpus import SPLITS, MadeExamples, part_of
from ptrun.task.stored import Stored, is_intact, stored


@dataclass(frozen=True)
class RowShards:
    """Rows in numbered files of a folder, from 0 to the first that is missing or damaged.

    Each file is complete, so an interrupted job resumes. Its first row is its head: the number of
    corpus lines that it covers, and the number of rows of each split.
    """

    folder: Path

    def heads(self) -> Iterator[dict[str, Any]]:
        """Yield the head of each file."""
        return (shard[0] for shard in self._shards())

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield all rows."""
        return (row for shard in self._shards() for row in shard[1:])

    def write(self, number: int, lines: int, rows: Sequence[dict[str, Any]]) -> None:
        """Write a file atomically; `lines` corpus lines gave the `rows`."""
        head = {"lines": lines, "kept": Counter(row["split"] for row in rows)}
        stored(self._file(number), lambda: [head, *rows], dict)

    def _shards(self) -> Iterator[Stored[dict[str, Any]]]:
        files = takewhile(is_intact, map(self._file, count()))
        return (Stored(file, dict) for file in files)

    def _file(self, number: int) -> Path:
        return self.folder / f"{number:06}.arrow"


_SHORTER, _LONGEST = 10, 10_000  # characters of a line: more than, and at most
_SHARD = 4096  # lines
_LOCATIONS = ("labeller", "shards")  # no part of the identity: `fingerprint` stands for them


@dataclass(frozen=True)
class CorpusLine:
    """A line, its place in the corpus as `id`, and its split, which its text alone decides."""

    id: str
    split: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Labelled(MadeExamples):
    """Lines whose label has a probability above a threshold.

    Args beyond those of `MadeExamples`, whose `shares` count lines here:
        labeller: `run:RUN`, a finished run of a classification task.
        thresholds: a label's probability must be above its threshold; by label, or for the `first`,
            the `last` and each `other` label. PPT: .95, .7 and .5 for five grades.
        fingerprint, shards: the classifier's fingerprint and the folder of the labelled lines;
            `ptrun.runs.finished` fills them in.
    """

    labeller: str
    thresholds: Mapping[str, float] = field(default_factory=dict)
    fingerprint: str = ""
    shards: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for label, least in self.thresholds.items():
            if not (isinstance(least, int | float) and 0 <= least < 1):
                raise UserError(
                    f"task.source.thresholds.{label} is {least!r}; give a probability from 0 to 1."
                )

    def digest(self) -> str:
        """Return what identifies the examples, independent of where the files are."""
        return self.identity(_LOCATIONS)

    def folder_name(self) -> str:
        """Return 16 hex that identify the shards; more examples only add shards."""
        identity = self.identity((*_LOCATIONS, "examples"))
        return hashlib.sha256(identity.encode()).hexdigest()[:16]

    def every(self, split: str) -> Iterator[dict[str, Any]]:
        """Yield all rows of a split from the shards."""
        return (row for row in self.kept.rows() if row["split"] == split)

    def none(self, split: str) -> str:
        """Return the error message for a split without examples."""
        return (
            f"no line of {split} has a label above its threshold; lower task.source.thresholds,\n"
            "or give a larger corpus."
        )

    @property
    def kept(self) -> RowShards:
        """The shards."""
        if self.shards is None:
            raise UserError(f"task.source.labeller={self.labeller}: expected run:RUN_ID.")
        return RowShards(Path(self.shards))

    def full(self) -> bool:
        """Return whether the shards have the requested examples, or the whole corpus."""
        lines, counts = self._found()
        ended = bool(lines) and lines[-1] < _SHARD
        return ended or all(counts[split] >= self.examples[split] for split in SPLITS)

    def progress(self) -> str:
        """Return the progress of labelling as text."""
        lines, counts = self._found()
        kept = (f"{split} {counts[split]:,}/{self.examples[split]:,}" for split in SPLITS)
        return f"{sum(lines):,} lines labelled, kept {', '.join(kept)}"

    def _found(self) -> tuple[list[int], Counter[str]]:
        """Return the lines of each shard, and the rows of each split."""
        heads = list(self.kept.heads())
        kept = sum((Counter(head["kept"]) for head in heads), Counter[str]())
        return [head["lines"] for head in heads], kept

    def waiting(self) -> Iterator[tuple[int, list[CorpusLine]]]:
        """Yield the number and the lines of each missing shard; only the last is not full."""
        done = len(list(self.kept.heads()))
        lines = islice(self._lines(), done * _SHARD, None)
        for number in count(done):
            block = list(islice(lines, _SHARD))
            yield number, block
            if len(block) < _SHARD:
                return

    def _lines(self) -> Iterator[CorpusLine]:
        for number, document in enumerate(self.documents()):
            for place, text in enumerate(document):
                if _SHORTER < len(text) <= _LONGEST:
                    split = SPLITS[part_of([text], self.shares)]
                    yield CorpusLine(f"{number}-{place}", split, text)
