"""The honest protocol: dev selects, and test is scored once afterwards.

If a data set publishes no labelled test set, its dev set becomes the test set and dev is carved
from train, so no example is both selected on and reported. If it has only train, both are carved.
Classes keep their shares.
"""

from collections.abc import Sequence
from typing import Literal

from ptrun.protocol.base import carve
from ptrun.task.base import Task
from ptrun.task.multi import Multi
from ptrun.types import Example, Split


class Honest:
    """Selection and report on disjoint examples.

    Args:
        dev_share: share of train to carve for a missing set; see `carve` for small ones.
    """

    select_best = True
    disjoint = True

    def __init__(self, *, dev_share: float = 0.1):
        self.dev_share = dev_share

    def split(self, task: Task, data_seed: int) -> Split:
        """Return train, dev and test; `data_seed` decides the carved sets."""
        if isinstance(task, Multi):
            return task.joined({n: self.split(t, data_seed) for n, t in task.tasks.items()})
        train = task.load("train")
        if task.has("dev") and task.has("test"):
            origin = {"dev": "published dev", "test": "published test"}
            return Split(train, task.load("dev"), task.load("test"), origin)
        rest, test, reported = self._reported(task, train, data_seed)
        rest, dev, drawn = self._carved(task, rest, data_seed, "dev")
        return Split(rest, dev, test, {"dev": drawn, "test": reported})

    def _reported(
        self, task: Task, train: Sequence[Example], data_seed: int
    ) -> tuple[Sequence[Example], Sequence[Example], str]:
        """Return the rest of train, the reported examples, and their origin."""
        if task.has("test"):
            return train, task.load("test"), "published test"
        if task.has("dev"):
            return train, task.load("dev"), "published dev"
        return self._carved(task, train, data_seed, "test")

    def _carved(
        self, task: Task, train: Sequence[Example], data_seed: int, part: Literal["dev", "test"]
    ) -> tuple[list[Example], list[Example], str]:
        """Return the rest of train, the carved part, and its origin."""
        by_class = task.stratified
        rest, taken = carve(train, self.dev_share, data_seed, part, by_class=by_class)
        share = f"{len(taken) / len(train):.0%} of "
        grouped = taken[0].group is not None
        return rest, taken, share + ("each class of train" if by_class and not grouped else "train")
