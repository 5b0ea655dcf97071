"""A protocol decides which examples are used for selection and which for the reported score."""

import random
from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

from ptrun.errors import UserError
from ptrun.protocol.overlap import fingerprint
from ptrun.task.base import Task
from ptrun.types import Example, Split


class ClaimProtocol(Protocol):
    """How examples are selected on and reported."""

    select_best: bool
    """Whether the best dev evaluation is reported, or the last step."""
    disjoint: bool
    """Whether a test set that equals dev is rejected."""

    def split(self, task: Task, data_seed: int) -> Split:
        """Return the task's examples as train, dev and test."""


_FEWEST = 10  # smallest carved part, unless it exceeds a quarter of train


def carve(
    train: Sequence[Example],
    share: float,
    seed: int,
    part: Literal["dev", "test"] = "dev",
    *,
    by_class: bool = False,
) -> tuple[list[Example], list[Example]]:
    """Split train into the rest and a part, both in file order.

    The part has `share` of train, but at least 10 examples if that is at most a quarter: 2 of 20
    would select by chance. With `by_class` each label has the same share of both, to rounding, and
    train keeps at least one example of each. Examples of one group (the answers to one question)
    stay together, whatever their labels. So do examples of equal texts (`overlap.normalise`), which
    would be learned and then answered; a part may then be a few examples smaller.

    Raises:
        UserError: train is too small.
    """
    if by_class and any(example.group is not None for example in train):
        return _carve_groups(train, share, seed, part)
    size = max(round(share * len(train)), min(_FEWEST, len(train) // 4))
    classes = _classes(train) if by_class else [list(range(len(train)))]
    if not 0 < size <= len(train) - len(classes):
        raise UserError(
            f"train has {len(train)} examples{f' of {len(classes)} labels' * by_class}, too few to "
            f"carve {share:.0%} for {part}; add examples, or a dev and a test set."
        )
    drawn = random.Random(f"carve:{seed}" if part == "dev" else f"carve {part}:{seed}")
    sizes = _sizes([len(places) for places in classes], size)
    copies = _copies(train)
    taken: set[int] = set()
    for places, k in zip(classes, sizes, strict=True):
        taken |= _drawn(places, k, drawn, copies)
    rest = [example for index, example in enumerate(train) if index not in taken]
    return rest, [train[index] for index in sorted(taken)]


def _drawn(
    places: Sequence[int], size: int, drawn: random.Random, copies: Mapping[int, Sequence[int]]
) -> set[int]:
    """Return so many of the places of a class; each is drawn with all places of equal texts.

    What would make the part too large is left in train.
    """
    if not copies:
        return set(drawn.sample(places, size))
    firsts = [place for place in places if copies.get(place, [place])[0] == place]
    taken: set[int] = set()
    for place in drawn.sample(firsts, len(firsts)):
        equal = copies.get(place, [place])
        if len(taken) + len(equal) <= size:
            taken.update(equal)
    return taken


def _copies(train: Sequence[Example]) -> dict[int, list[int]]:
    """Return the places of each text that occurs more than once, by each of its places."""
    places: dict[int, list[int]] = {}
    for place, example in enumerate(train):
        if example.fields:
            places.setdefault(int(fingerprint(example), 16), []).append(place)
    return {place: own for own in places.values() if len(own) > 1 for place in own}


def _carve_groups(
    train: Sequence[Example], share: float, seed: int, part: str
) -> tuple[list[Example], list[Example]]:
    """Split train into the rest and a share of its groups."""
    groups = list(dict.fromkeys(example.group for example in train))
    size = max(1, round(share * len(groups)))
    if not 0 < size < len(groups):
        raise UserError(
            f"train has {len(groups)} groups of examples, too few to carve {share:.0%} for {part}; "
            "add examples, or a dev and a test set."
        )
    taken = set(random.Random(f"carve groups for {part}:{seed}").sample(groups, size))
    rest = [example for example in train if example.group not in taken]
    return rest, [example for example in train if example.group in taken]


def _classes(examples: Sequence[Example]) -> list[list[int]]:
    """Return the indices of each label, in order of first appearance."""
    places: dict[str, list[int]] = {}
    for index, example in enumerate(examples):
        places.setdefault(example.target, []).append(index)
    return list(places.values())


def _sizes(counts: Sequence[int], size: int) -> list[int]:
    """Divide `size` over classes in proportion to their counts, by largest remainder.

    Each class keeps one example. Ties go to the class with the smaller size.
    """
    total = sum(counts)
    sizes = [size * count // total for count in counts]
    while sum(sizes) < size:
        able = [i for i, count in enumerate(counts) if sizes[i] < count - 1]
        sizes[max(able, key=lambda i: (size * counts[i] - total * sizes[i], -sizes[i]))] += 1
    return sizes
