"""What all examples made of a corpus share: how many there are, and of which documents."""

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import islice
from typing import Any, get_args

from ptrun.errors import UserError
from ptrun.task.ppt.documents import Unit, digest
from ptrun.task.shown import names, near, shown

SPLITS = ("train", "validation", "test")


@dataclass(frozen=True, kw_only=True)
class Made(ABC):
    """What a task's `source` says, whatever is made.

    Args:
        corpus: as in `ptrun.task.ppt.documents`.
        examples: the most of each split, the first that the corpus gives.
        field: where a row of JSON has its text.
        unit: what a line is.
        shares: of train, validation and test. PPT has 949, 50 and 1; a test of one in a thousand
            would be too small on a small corpus.

    Raises:
        UserError: a value is of the wrong form.
    """

    corpus: str
    examples: Mapping[str, int]
    field: str = "doc"
    unit: Unit = "line"
    shares: Sequence[int] = (900, 50, 50)

    def __post_init__(self) -> None:
        check_known("unit", self.unit, get_args(Unit))
        if set(self.examples) != set(SPLITS) or not _counts(self.examples.values(), least=1):
            raise UserError(
                f"task.source.examples is {dict(self.examples)}; give a number above 0 for each "
                f"of {', '.join(SPLITS)}."
            )
        if len(self.shares) != len(SPLITS) or not _counts(self.shares, least=1):
            raise UserError(
                f"task.source.shares is {list(self.shares)}; give three numbers above 0, "
                "for train, validation and test, as in [900,50,50]."
            )

    def rows(self, split: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the rows of a split, and where in it each stands.

        Raises:
            UserError: the corpus cannot be read, or gives none.
        """
        number = 0
        for number, row in enumerate(islice(self.every(split), self.examples[split]), start=1):
            yield f"{self.corpus}/{split} example {number}", row
        if not number:
            raise UserError(f"task.source.corpus={self.corpus}: {self.none(split)}")

    def digest(self) -> str:
        """Return what identifies the examples, wherever the corpus lies."""
        return self.identity(())

    def identity(self, left_out: Collection[str]) -> str:
        """Return what the examples are made of and how, but for some keys, as JSON."""
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in left_out}
        return json.dumps({**own, "corpus": digest(self.corpus)}, sort_keys=True, default=list)

    @abstractmethod
    def every(self, split: str) -> Iterator[dict[str, Any]]:
        """Yield all rows of a split that the corpus gives."""

    @abstractmethod
    def none(self, split: str) -> str:
        """Return what to say where it gives none."""


def check_known(key: str, value: Any, known: Iterable[str]) -> None:
    """Refuse a value of `task.source` that is none of those known, or an unknown key ("")."""
    if value not in known:
        raise UserError(
            f"task.source{key and '.'}{key} has {shown(value)}{near(str(value), known)} "
            f"Allowed: {names(known)}."
        )


def _counts(values: Any, *, least: int) -> bool:
    return all(type(value) is int and value >= least for value in values)
