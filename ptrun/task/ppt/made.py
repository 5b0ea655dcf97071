"""What all examples made from a corpus share: their number, and the documents they come from."""

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import islice
from typing import Any, get_args

from ptrun.errors import UserError
from ptrun.task.ppt.documents import Document, Unit, digest, documents
from ptrun.task.shown import names, near, shown

SPLITS = ("train", "validation", "test")


@dataclass(frozen=True, kw_only=True)
class Made(ABC):
    """The keys of a task's `source` that all kinds of made examples have.

    Args:
        corpus: as in `ptrun.task.ppt.documents`.
        examples: largest number of examples of each split, the first of the corpus.
        field: the field with the text, in JSON rows.
        unit: what a line is.
        shares: shares of train, validation and test. PPT has 949, 50 and 1; a test share of 1 in
            1,000 is too small for a small corpus.

    Raises:
        UserError: a value has a wrong type or is out of range.
    """

    corpus: str
    examples: Mapping[str, int]
    field: str = "doc"
    unit: Unit = "line"
    shares: Sequence[int] = (900, 50, 50)

    def __post_init__(self) -> None:
        check_allowed("unit", self.unit, get_args(Unit))
        if set(self.examples) != set(SPLITS) or not positive(self.examples.values()):
            raise UserError(
                f"task.source.examples is {dict(self.examples)}; give a number above 0 for each "
                f"of {', '.join(SPLITS)}."
            )
        if len(self.shares) != len(SPLITS) or not positive(self.shares):
            raise UserError(
                f"task.source.shares is {list(self.shares)}; give three numbers above 0, "
                "for train, validation and test, as in [900,50,50]."
            )

    def rows(self, split: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the rows of a split, each with its place for error messages.

        Raises:
            UserError: the corpus cannot be read, or gives no row.
        """
        number = 0
        for number, row in enumerate(islice(self.every(split), self.examples[split]), start=1):
            yield f"{self.corpus}/{split} example {number}", row
        if not number:
            raise UserError(f"task.source.corpus={self.corpus}: {self.none(split)}")

    def digest(self) -> str:
        """Return what identifies the examples, independent of the corpus's path."""
        return self.identity(())

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


def check_allowed(key: str, value: Any, allowed: Iterable[str]) -> None:
    """Refuse an unknown value of a key of `task.source`; with key "", an unknown key."""
    if value not in allowed:
        subject = f"task.source.{key} is" if key else "task.source has"
        hint = near(str(value), allowed) or "."
        raise UserError(f"{subject} {shown(value)}{hint} Allowed: {names(allowed)}.")


def positive(values: Iterable[Any]) -> bool:
    """Return whether all values are whole numbers above 0."""
    return all(type(value) is int and value > 0 for value in values)
