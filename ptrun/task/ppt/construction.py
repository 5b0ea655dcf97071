"""Examples made from a corpus without labels: the data on which PPT pre-trains prompts.

The corpus is read as a stream, document by document, until a split has the requested number of
examples. The seed and the corpus determine every example, so a resumed run makes the same ones.
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
from ptrun.task.ppt.documents import Document
from ptrun.task.ppt.labelled import Labelled
from ptrun.task.ppt.made import SPLITS, Made, check_allowed

_LOG = logging.getLogger(__name__)
_LOG_EVERY = 10.0  # seconds

Maker = Callable[[Case], Iterator[dict[str, Any]]]
MAKERS: Mapping[str, tuple[Need, Maker]] = {
    "nsp": (pairs.NEED, pairs.rows),
    "nss": (selection.NEED, selection.rows),
    "unified": (selection.UNIFIED_NEED, selection.unified_rows),
}


@dataclass(frozen=True, kw_only=True)
class Construction(Made):
    """Pairs or questions made of lines; the splits share no document.

    Args beyond those of `Made`:
        make: `nsp`, `nss` or `unified`.
        seed: determines every draw; PPT's is 233.
    """

    make: str
    seed: int = 233

    def __post_init__(self) -> None:
        check_allowed("make", self.make, MAKERS)
        super().__post_init__()

    def every(self, split: str) -> Iterator[dict[str, Any]]:
        """Yield all rows that the corpus gives for a split."""
        need, maker = MAKERS[self.make]
        seed = f"{self.seed}:{self.make}:{split}"
        usable = self._usable(split, need)
        return (row for case in cases(usable, need.others, seed) for row in maker(case))

    def none(self, split: str) -> str:
        """Return the error message for a split without examples."""
        need, _ = MAKERS[self.make]
        return (
            f"no example for {split}: {self.make} needs more than {need.others} documents in this "
            f"split, each of {need.lines} lines or more, each line of {need.words} words or more.\n"
            "Type task.source.unit=sentence, or task.source.shares=[80,10,10], or give a larger "
            "corpus."
        )

    def _usable(self, split: str, need: Need) -> Iterator[Document]:
        part, used, logged = SPLITS.index(split), 0, time.monotonic()
        for number, document in enumerate(self.documents(), start=1):
            if time.monotonic() - logged > _LOG_EVERY:
                logged = time.monotonic()
                _LOG.info("%s %s: %d documents read, %d used", self.make, split, number, used)
            if part_of(document, self.shares) == part and need.met(document):
                used += 1
                yield document


def read(origin: Mapping[str, Any]) -> Made:
    """Return the examples that a task's `source` describes.

    Raises:
        UserError: a key is unknown or missing, or a value has a wrong type.
    """
    kind: type[Made] = Labelled if "labeller" in origin else Construction
    allowed = [f.name for f in fields(kind)]
    for key in origin:
        check_allowed("", key, allowed)
    for key in ("corpus", "examples", *(() if kind is Labelled else ("make",))):
        if key not in origin:
            raise UserError(f"task.source has no {key}; give {', '.join(allowed)}.")
    hints = get_type_hints(kind)
    for key, value in origin.items():
        plain = list(value) if isinstance(value, tuple) else value
        if get_origin(hints[key]) is not Literal and not fits(plain, hints[key]):
            raise UserError(f"task.source.{key}: expected {spell(hints[key])}, got {plain!r}.")
    return kind(**origin)
