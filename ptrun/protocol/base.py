"""A protocol says which examples select, which are reported, and what a number may claim."""

import random
from collections.abc import Sequence
from typing import Protocol

from ptrun.errors import UserError
from ptrun.task.base import Task
from ptrun.types import Example, Split


class ClaimProtocol(Protocol):
    """How a number is claimed."""

    select_best: bool
    """Whether the best dev evaluation counts, or the last step."""

    def split(self, task: Task, data_seed: int) -> Split:
        """Return the task's examples as train, dev and test."""


def carve(train: Sequence[Example], share: float, seed: int) -> tuple[list[Example], list[Example]]:
    """Return what is left of train and a dev set taken from it, both in file order.

    Raises:
        UserError: train is too small to give up a share.
    """
    size = round(share * len(train))
    if not 0 < size < len(train):
        raise UserError(f"train has {len(train)} examples, too few to carve {share:.0%} for dev.")
    taken = set(random.Random(f"carve:{seed}").sample(range(len(train)), size))
    rest = [example for index, example in enumerate(train) if index not in taken]
    return rest, [train[index] for index in sorted(taken)]
