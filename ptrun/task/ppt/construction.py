"""Examples made of a corpus without labels, part by part: the data on which PPT learns prompts.

The whole is a stream: a corpus of any size is read document by document until a part has as many
examples as are asked for. The seed and the corpus decide every example, on any machine, so a run
that was killed makes the same ones again.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_origin, get_type_hints

from ptrun.config.typecheck import fits, spell
from ptrun.errors import UserError
from ptrun.task.ppt import pairs, selection
from ptrun.task.ppt.blocks import Case, Need, cases, part_of
from ptrun.task.ppt.documents import Document, documents
from ptrun.task.ppt.labelled import Labelled
from ptrun.task.ppt.made import SPLITS, Made, check_known

_LOG = logging.getLogger(__name__)
_TOLD_EVERY = 10.0  # seconds

Maker = Callable[[Case], Iterator[dict[str, Any]]]
MAKERS: Mapping[str, tuple[Need, Maker]] = {
    "nsp": (pairs.NEED, pairs.rows),
    "nss": (selection.NEED, selection.rows),
    "unified": (selection.UNIFIED_NEED, selection.unified_rows),
}


@dataclass(frozen=True, kw_only=True)
class Construction(Made):
    """Pairs or questions of lines, in parts that share no document.

    Args beyond those of `Made`:
        make: `nsp`, `nss` or `unified`.
        seed: decides every draw; PPT's is 233.
    """

    make: str
    seed: int = 233

    def __post_init__(self) -> None:
        check_known("make", self.make, MAKERS)
        super().__post_init__()

    def every(self, split: str) -> Iterator[dict[str, Any]]:
        """Yield all rows of a split that the corpus gives."""
        need, maker = MAKERS[self.make]
        seed = f"{self.seed}:{self.make}:{split}"
        found = cases(self._usable(split, need), need.others, seed)
        return (row for case in found for row in maker(case))

    def none(self, split: str) -> str:
        """Return what to say where there is no example."""
        need, _ = MAKERS[self.make]
        return (
            f"no example for {split}: {self.make} needs more than {need.others} documents in it, "
            f"of {need.lines} lines or more, all of {need.words} words or more.\n"
            "Type task.source.unit=sentence, or task.source.shares=[80,10,10], or give a larger "
            "corpus."
        )

    def _usable(self, split: str, need: Need) -> Iterator[Document]:
        part, used, told = SPLITS.index(split), 0, time.monotonic()
        read = documents(self.corpus, field=self.field, unit=self.unit)
        for number, document in enumerate(read, start=1):
            if time.monotonic() - told > _TOLD_EVERY:
                told = time.monotonic()
                _LOG.info("%s %s: %d documents read, %d used", self.make, split, number, used)
            if part_of(document, self.shares) == part and need.met(document):
                used += 1
                yield document


def read(origin: Mapping[str, Any]) -> Made:
    """Return what a task's `source` says is made of a corpus.

    Raises:
        UserError: a key is unknown or missing, or a value does not fit.
    """
    kind: type[Made] = Labelled if "labeller" in origin else Construction
    known = [f.name for f in fields(kind)]
    for key in origin:
        check_known("", key, known)
    needed = ("corpus", "examples", *(() if kind is Labelled else ("make",)))
    missing = [key for key in needed if key not in origin]
    if missing:
        raise UserError(f"task.source has no {missing[0]}; give {', '.join(known)}.")
    _check_forms(kind, origin)
    return kind(**origin)


def _check_forms(kind: type[Made], origin: Mapping[str, Any]) -> None:
    """Refuse a number where a text is wanted, and the like."""
    hints = get_type_hints(kind)
    for key, value in origin.items():
        plain = list(value) if isinstance(value, tuple) else value
        if get_origin(hints[key]) is not Literal and not fits(plain, hints[key]):
            raise UserError(f"task.source.{key}: expected {spell(hints[key])}, got {plain!r}.")
