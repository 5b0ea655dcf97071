"""Examples made of a corpus without labels, part by part: the data on which PPT learns prompts.

The whole is a stream: a corpus of any size is read document by document until a part has as many
examples as are asked for. The seed and the corpus decide every example, on any machine.
"""

import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import islice
from typing import Any, get_args

from ptrun.errors import UserError
from ptrun.task.ppt import pairs, selection
from ptrun.task.ppt.blocks import Case, Need, cases, part_of
from ptrun.task.ppt.documents import Document, Unit, digest, documents
from ptrun.task.shown import names, near, shown

_LOG = logging.getLogger(__name__)
_SPLITS = ("train", "validation", "test")
_TOLD_EVERY = 10.0  # seconds

Maker = Callable[[Case], Iterator[dict[str, Any]]]
MAKERS: Mapping[str, tuple[Need, Maker]] = {
    "nsp": (pairs.NEED, pairs.rows),
    "nss": (selection.NEED, selection.rows),
    "unified": (selection.UNIFIED_NEED, selection.unified_rows),
}


@dataclass(frozen=True)
class Construction:
    """What a task's `source` says.

    Args:
        corpus: as in `ptrun.task.ppt.documents`.
        make: `nsp`, `nss` or `unified`.
        examples: the most of each split, the first that the corpus gives.
        field: where a row of JSON has its text.
        unit: what a line is.
        seed: decides every draw; PPT's is 233.
        shares: of documents in train, validation and test. PPT has 949, 50 and 1; a test of one
            document in a thousand would be too small on a small corpus.

    Raises:
        UserError: a value is of the wrong form.
    """

    corpus: str
    make: str
    examples: Mapping[str, int]
    field: str = "doc"
    unit: Unit = "line"
    seed: int = 233
    shares: Sequence[int] = (900, 50, 50)

    def __post_init__(self) -> None:
        _check_known("make", self.make, MAKERS)
        _check_known("unit", self.unit, get_args(Unit))
        if set(self.examples) != set(_SPLITS) or not _counts(self.examples.values(), least=1):
            raise UserError(
                f"task.source.examples is {dict(self.examples)}; give a number above 0 for each "
                f"of {', '.join(_SPLITS)}."
            )
        if len(self.shares) != len(_SPLITS) or not _counts(self.shares, least=1):
            raise UserError(
                f"task.source.shares is {list(self.shares)}; give three numbers above 0, "
                "for train, validation and test, as in [900,50,50]."
            )

    def rows(self, split: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the rows of a split, and where in it each stands.

        Raises:
            UserError: the corpus cannot be read, or gives none.
        """
        need, maker = MAKERS[self.make]
        seed = f"{self.seed}:{self.make}:{split}"
        found = cases(self._usable(split, need), need.others, seed)
        every = (row for case in found for row in maker(case))
        number = 0
        for number, row in enumerate(islice(every, self.examples[split]), start=1):
            yield f"{self.corpus}/{split} example {number}", row
        if not number:
            raise UserError(
                f"task.source.corpus={self.corpus}: no example for {split}: {self.make} needs more "
                f"than {need.others} documents in it, of {need.lines} lines or more, all of "
                f"{need.words} words or more.\n"
                "Type task.source.unit=sentence, or task.source.shares=[80,10,10], or give a "
                "larger corpus."
            )

    def digest(self) -> str:
        """Return what identifies the examples, wherever the corpus lies."""
        told = {f.name: getattr(self, f.name) for f in fields(self)}
        return json.dumps({**told, "corpus": digest(self.corpus)}, sort_keys=True, default=list)

    def _usable(self, split: str, need: Need) -> Iterator[Document]:
        part, used, told = _SPLITS.index(split), 0, time.monotonic()
        read = documents(self.corpus, field=self.field, unit=self.unit)
        for number, document in enumerate(read, start=1):
            if time.monotonic() - told > _TOLD_EVERY:
                told = time.monotonic()
                _LOG.info("%s %s: %d documents read, %d used", self.make, split, number, used)
            if part_of(document, self.shares) == part and need.met(document):
                used += 1
                yield document


def read(origin: Mapping[str, Any]) -> Construction:
    """Return the construction of a task's `source`.

    Raises:
        UserError: a key is unknown or missing, or a value does not fit.
    """
    known = [f.name for f in fields(Construction)]
    for key in origin:
        _check_known("", key, known)
    missing = [key for key in ("corpus", "make", "examples") if key not in origin]
    if missing:
        raise UserError(f"task.source has no {missing[0]}; give {', '.join(known)}.")
    return Construction(**origin)


def _check_known(key: str, value: Any, known: Iterable[str]) -> None:
    if value not in known:
        raise UserError(
            f"task.source{key and '.'}{key} has {shown(value)}{near(str(value), known)} "
            f"Allowed: {names(known)}."
        )


def _counts(values: Any, *, least: int) -> bool:
    return all(type(value) is int and value >= least for value in values)
