"""How long the texts are and how many there are, where data and tokenizer are at hand."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from ptrun.errors import UserError
from ptrun.planning.costs import method_of
from ptrun.run.parts import usable
from ptrun.run.plan import Plan, split_of
from ptrun.training.optim import total_steps
from ptrun.types import Example, Split

LENGTH = 256
"""Tokens of a text where nothing is known of it."""

_SOME = 256  # examples whose length is looked at


@dataclass(frozen=True)
class Texts:
    """Tokens of a text, where that is from, and how many texts are learned from, if known."""

    length: int
    origin: str
    train: int | None


def texts(planned: Plan, asked: int | None) -> Texts:
    """Return the length that is planned for; nothing is downloaded.

    Raises:
        UserError: the length is more than the backbone reads.
    """
    room = method_of(planned).room()
    if asked is not None and asked > room:
        raise UserError(f"length is {asked}; {planned.backbone.name} reads {room} here, or less.")
    split = _split(planned)
    train = len(split.train) if split else None
    if asked is not None:
        return Texts(asked, "as asked", train)
    if split and split.train and planned.backbone.folder is not None:
        some = _some(split.train)
        longest = max(f.tokens for f in method_of(planned).encode(some))
        return Texts(longest, f"the longest of {len(some)} training examples", train)
    length = min(room, planned.task.max_tokens or LENGTH)
    return Texts(length, "assumed; --length N plans for another", train)


def steps(planned: Plan, found: Texts) -> int | None:
    """Return the optimizer steps of a run; None where the number of examples is not known."""
    train = planned.train
    if train.max_steps is None and found.train is None:
        return None
    return total_steps(train, ceil((found.train or 1) / train.batch_size))


def _split(planned: Plan) -> Split | None:
    """Return the examples if they are on this machine, and not to be made by another run."""
    if not _here(planned):
        return None
    try:
        return usable(method_of(planned), split_of(planned)[0])
    except UserError:
        return None  # a run says what is missing; a plan does without


def _here(planned: Plan) -> bool:
    source = planned.source
    if source is None:
        return planned.task.kind != "multi"
    return not planned.of_corpus and ("pocket" in source.origin or source.exists("train"))


def _some(examples: Sequence[Example]) -> list[Example]:
    return list(examples[:: max(1, len(examples) // _SOME)][:_SOME])
