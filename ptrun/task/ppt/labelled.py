"""Lines of a corpus with the labels a classifier gave them: what PPT learns prompts for texts on.

The classifier is another run, named by `task.source.labeller`. `ptrun.run.labelling` runs it and
keeps its answers in shards. This file selects the lines to label and reads the shards.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from ptrun.errors import UserError
from ptrun.task.ppt.blocks import part_of
from ptrun.task.ppt.documents import documents
from ptrun.task.ppt.made import SPLITS, Made
from ptrun.task.ppt.shards import Shards

_SHORTER, _LONGEST = 10, 10_000  # characters: more than, and at most
_SHARD = 4096  # lines
_NOT_WHAT = ("labeller", "shards")  # where things lie
_MORE = ("examples",)  # asked of the same shards


@dataclass(frozen=True)
class Line:
    """A line, where it stands, and the split it is in, which its text alone decides."""

    id: str
    split: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Labelled(Made):
    """Lines of which a classifier is sure enough.

    Args beyond those of `Made`, whose `shares` are here of lines:
        labeller: `run:RUN`, a finished run of a classification task.
        thresholds: what a label's probability must be above; by label, or for the `first`, the
            `last` and each `other` of the classifier's. PPT: .95, .7 and .5 of five grades.
        fingerprint: what identifies the classifier, and `shards` the folder of what it said; both
            are found out by `ptrun.run.labelling`.

    Raises:
        UserError: a value is of the wrong form.
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
        """Return what identifies the examples, wherever corpus and classifier lie."""
        return self.identity(_NOT_WHAT)

    def folder_name(self) -> str:
        """Return 16 hex that differ wherever a shard would; more examples are more shards."""
        return hashlib.sha256(self.identity((*_NOT_WHAT, *_MORE)).encode()).hexdigest()[:16]

    def every(self, split: str) -> Iterator[dict[str, Any]]:
        """Yield all rows of a split that are in the shards."""
        return (row for row in self.kept.rows() if row["split"] == split)

    def none(self, split: str) -> str:
        """Return what to say where there is no example."""
        return (
            f"no line for {split} of which the classifier is sure enough; lower "
            "task.source.thresholds,\nor give a larger corpus."
        )

    @property
    def kept(self) -> Shards:
        """The shards.

        Raises:
            UserError: no classifier was asked.
        """
        if self.shards is None:
            raise UserError(
                f"task.source.labeller={self.labeller}: which run? Type "
                "task.source.labeller=run:RUN_ID, a finished run of a classification task."
            )
        return Shards(Path(self.shards))

    def full(self) -> bool:
        """Return whether the shards have what is asked for, or all that the corpus gives."""
        heads = list(self.kept.heads())
        counts = _counts(heads)
        ended = bool(heads) and heads[-1]["lines"] < _SHARD
        return ended or all(counts[split] >= self.examples[split] for split in SPLITS)

    def progress(self) -> str:
        """Return how far the shards are, in words."""
        heads = list(self.kept.heads())
        counts = _counts(heads)
        kept = (f"{split} {counts[split]:,}/{self.examples[split]:,}" for split in SPLITS)
        return f"{sum(head['lines'] for head in heads):,} lines labelled, kept {', '.join(kept)}"

    def waiting(self) -> Iterator[tuple[int, list[Line]]]:
        """Yield the number and the lines of each shard still to be made; the last is not full."""
        number = len(list(self.kept.heads()))
        lines = islice(self._lines(), number * _SHARD, None)
        while True:
            block = list(islice(lines, _SHARD))
            yield number, block
            number += 1
            if len(block) < _SHARD:
                return

    def _lines(self) -> Iterator[Line]:
        read = documents(self.corpus, field=self.field, unit=self.unit)
        for number, document in enumerate(read):
            for place, text in enumerate(document):
                if _SHORTER < len(text) <= _LONGEST:
                    split = SPLITS[part_of([text], self.shares)]
                    yield Line(f"{number}-{place}", split, text)


def _counts(heads: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    return {split: sum(head["kept"].get(split, 0) for head in heads) for split in SPLITS}
