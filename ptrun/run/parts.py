"""The parts of a run that are learned apart: one, or one a relation on fact probing."""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ptrun.errors import UserError
from ptrun.method.base import Method
from ptrun.types import Example, Split

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Part:
    """Examples that one member learns from and answers.

    `left_out` counts those of the reported split that the backbone has no one word for.
    """

    name: str
    split: Split
    left_out: int = 0

    @property
    def prefix(self) -> str:
        """What its tensors' names begin with."""
        return f"{self.name}/" if self.name else ""


def divide(method: Method, split: Split) -> list[Part]:
    """Return the parts of a split; a method says by `per_relation` that it learns each on its own.

    A relation that has nothing to learn from, select on or report is left out whole, and told.

    Raises:
        UserError: nothing is left.
    """
    kept = usable(method, split)
    left_out = len(split.test) - len(kept.test)
    if not getattr(method, "per_relation", False):
        return [Part("", kept, left_out)]
    names = list(dict.fromkeys(str(e.group) for e in kept.test))
    counts = Counter(str(e.group) for e in split.test)
    owns = ((name, _of(kept, name)) for name in names)
    parts = [Part(name, own, counts[name] - len(own.test)) for name, own in owns]
    whole = [part for part in parts if part.split.train and part.split.dev]
    for name in sorted({part.name for part in parts} - {part.name for part in whole}):
        _LOG.warning("relation %s has no train or dev examples and is left out", name)
    if not whole:
        raise UserError("no relation has train, dev and test examples; use another setting.")
    return whole


def usable(method: Method, split: Split) -> Split:
    """Return the examples a read-out can answer, and learns from.

    Those whose answer it cannot give (a fact's object of several tokens) are left out, as LAMA
    does, and counted aloud.

    Raises:
        UserError: nothing is left.
    """
    kept = _teaching(method, _answerable(method, split))
    left_out = len(split.test) - len(kept.test)
    if left_out:
        _LOG.warning(
            "%d of %d test examples are left out: their answer is not one token, or not an "
            "allowed one",
            *(left_out, len(split.test)),
        )
    if not kept.test:
        raise UserError(
            f"backbone={method.backbone.name}: no answer of the task is one token, or none is "
            "allowed."
        )
    if split.train and not kept.train:
        raise UserError(f"none of the {len(split.train)} training examples can teach this method.")
    return kept


def _answerable(method: Method, split: Split) -> Split:
    can = getattr(method.readout, "can_answer", None)
    if can is None:
        return split

    def kept(examples: Sequence[Example]) -> list[Example]:
        return [e for e in examples if can(e)]

    return replace(split, train=kept(split.train), dev=kept(split.dev), test=kept(split.test))


def _teaching(method: Method, split: Split) -> Split:
    """Return the split with what the read-out learns from: all of train, a part, or more."""
    chosen = getattr(method.readout, "teaching", None)
    if chosen is None:
        return split
    kept = chosen(split.train, method.room())
    left_out = len(split.train) - len(kept)
    if left_out > 0:
        _LOG.info("%d of %d training examples cannot teach", left_out, len(split.train))
    return replace(split, train=kept)


def _of(split: Split, name: str) -> Split:
    def own(examples: Sequence[Example]) -> list[Example]:
        return [e for e in examples if str(e.group) == name]

    return replace(split, train=own(split.train), dev=own(split.dev), test=own(split.test))
