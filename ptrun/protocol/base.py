"""A protocol says which examples select, which are reported, and what a number may claim."""

import random
from collections.abc import Sequence
from typing import Literal, Protocol

from ptrun.errors import UserError
from ptrun.task.base import Task
from ptrun.types import Example, Split


class ClaimProtocol(Protocol):
    """How a number is claimed."""

    select_best: bool
    """Whether the best dev evaluation counts, or the last step."""
    disjoint: bool
    """Whether a test that equals dev is refused."""

    def split(self, task: Task, data_seed: int) -> Split:
        """Return the task's examples as train, dev and test."""


_FEWEST = 10  # examples a carved part has, if that takes no more than a quarter of train


def carve(
    train: Sequence[Example], share: float, seed: int, part: Literal["dev", "test"] = "dev"
) -> tuple[list[Example], list[Example]]:
    """Return what is left of train and a part taken from it, both in file order.

    The part is `share` of train, but at least 10 examples as long as that is at most a quarter:
    2 of 20 would select by chance alone.

    Raises:
        UserError: train is too small to give up a share.
    """
    size = max(round(share * len(train)), min(_FEWEST, len(train) // 4))
    if not 0 < size < len(train):
        raise UserError(
            f"train has {len(train)} examples, too few to carve {share:.0%} for {part}; "
            "give it more, or a dev and a test set."
        )
    drawn = random.Random(f"carve:{seed}" if part == "dev" else f"carve {part}:{seed}")
    taken = set(drawn.sample(range(len(train)), size))
    rest = [example for index, example in enumerate(train) if index not in taken]
    return rest, [train[index] for index in sorted(taken)]
