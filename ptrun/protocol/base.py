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
    train: Sequence[Example],
    share: float,
    seed: int,
    part: Literal["dev", "test"] = "dev",
    *,
    by_class: bool = False,
) -> tuple[list[Example], list[Example]]:
    """Return what is left of train and a part taken from it, both in file order.

    The part is `share` of train, but at least 10 examples as long as that is at most a quarter:
    2 of 20 would select by chance alone. With `by_class` targets are labels: each has the same
    share of both, to rounding, and train keeps at least one example of each. Examples of one group
    (the answers to one question) stay together, whatever their labels.

    Raises:
        UserError: train is too small to give up a share.
    """
    if by_class and any(example.group is not None for example in train):
        return _carve_groups(train, share, seed, part)
    size = max(round(share * len(train)), min(_FEWEST, len(train) // 4))
    classes = _classes(train) if by_class else [list(range(len(train)))]
    if not 0 < size <= len(train) - len(classes):
        raise UserError(
            f"train has {len(train)} examples{f' of {len(classes)} labels' * by_class}, too few to "
            f"carve {share:.0%} for {part}; give it more, or a dev and a test set."
        )
    drawn = random.Random(f"carve:{seed}" if part == "dev" else f"carve {part}:{seed}")
    sizes = _sizes([len(own) for own in classes], size)
    parts = (drawn.sample(own, k) for own, k in zip(classes, sizes, strict=True))
    taken = {index for own in parts for index in own}
    rest = [example for index, example in enumerate(train) if index not in taken]
    return rest, [train[index] for index in sorted(taken)]


def _carve_groups(
    train: Sequence[Example], share: float, seed: int, part: str
) -> tuple[list[Example], list[Example]]:
    """Return what is left of train and a share of its groups."""
    groups = list(dict.fromkeys(example.group for example in train))
    size = max(1, round(share * len(groups)))
    if not 0 < size < len(groups):
        raise UserError(
            f"train has {len(groups)} groups of examples, too few to carve {share:.0%} for {part}; "
            "give it more, or a dev and a test set."
        )
    taken = set(random.Random(f"carve groups for {part}:{seed}").sample(groups, size))
    rest = [example for example in train if example.group not in taken]
    return rest, [example for example in train if example.group in taken]


def _classes(examples: Sequence[Example]) -> list[list[int]]:
    """Return the places of each label, in the order in which labels first appear."""
    places: dict[str, list[int]] = {}
    for index, example in enumerate(examples):
        places.setdefault(example.target, []).append(index)
    return list(places.values())


def _sizes(counts: Sequence[int], size: int) -> list[int]:
    """Return how many of each class make `size`: what is due, rounded by largest remainder.

    A class keeps one example; of equal remainders the class that has given less comes first.
    """
    total = sum(counts)
    sizes = [size * count // total for count in counts]
    while sum(sizes) < size:
        able = [i for i, count in enumerate(counts) if sizes[i] < count - 1]
        sizes[max(able, key=lambda i: (size * counts[i] - total * sizes[i], -sizes[i]))] += 1
    return sizes
