"""The length and number of texts, if data and tokenizer are on this machine."""

from dataclasses import dataclass
from math import ceil
from statistics import mean

from ptrun.errors import UserError
from ptrun.planning.costs import method_of
from ptrun.runs.parts import usable
from ptrun.runs.plan import Plan, split_of
from ptrun.training.optim import total_steps
from ptrun.types import Split

LENGTH = 256
"""Tokens of a text of unknown length."""

_SOME = 256  # examples whose length is measured


@dataclass(frozen=True)
class Texts:
    """Tokens of the longest text, the origin of that length, and tokens of a mean text.

    `train`, `dev` and `test` are numbers of examples, None if they are not known.
    """

    length: int
    origin: str
    mean: int
    train: int | None
    dev: int | None = None
    test: int | None = None


def texts(planned: Plan, length: int | None) -> Texts:
    """Return the planned length, `length` if given; nothing is downloaded.

    Raises:
        UserError: the length is more than the backbone reads.
    """
    room = method_of(planned).room()
    name = planned.backbone.name
    if length is not None and length > room:
        raise UserError(f"length is {length}; {name} reads at most {room} tokens here.")
    split = _split(planned)
    counts = (len(split.train), len(split.dev), len(split.test)) if split else (None,)
    if length is not None:
        return Texts(length, "as requested", length, *counts)
    if split and split.train and planned.backbone.folder is not None:
        some = split.train[:: max(1, len(split.train) // _SOME)][:_SOME]
        tokens = [f.tokens for f in method_of(planned).encode(some)]
        origin = f"the longest of {len(some)} training examples"
        return Texts(max(tokens), origin, ceil(mean(tokens)), *counts)
    assumed = min(room, planned.task.max_tokens or LENGTH)
    return Texts(assumed, "assumed; --length N plans for another", assumed, *counts)


def steps(planned: Plan, found: Texts) -> int | None:
    """Return the optimizer steps of a run; None if the number of examples is unknown."""
    train = planned.train
    if train.max_steps is None and found.train is None:
        return None
    return total_steps(train, ceil((found.train or 1) / train.batch_size))


def _split(planned: Plan) -> Split | None:
    """Return the examples if they are on this machine and no other run makes them."""
    if not _here(planned):
        return None
    try:
        return usable(method_of(planned), split_of(planned)[0])
    except UserError:
        return None  # the run reports the error; a plan needs no data


def _here(planned: Plan) -> bool:
    source = planned.source
    if source is None:
        return planned.task.answer != "several"
    return not planned.of_corpus and ("pocket" in source.origin or source.exists("train"))
