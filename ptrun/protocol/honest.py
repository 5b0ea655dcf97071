"""The honest protocol: dev selects, test is scored once afterwards.

Where a data set publishes no labelled test, its dev set is the test set and dev is carved from
train, so that nothing is both selected on and reported; where it has train alone, both are carved.
Classes keep their shares.
"""

from typing import Literal

from ptrun.protocol.base import carve
from ptrun.task.base import Task
from ptrun.task.multi import Multi
from ptrun.types import Example, Split


class Honest:
    """Disjoint selection and report.

    Args:
        dev_share: share of train that becomes dev where the data set has none to spare; see `carve`
            for small ones.
    """

    select_best = True
    disjoint = True

    def __init__(self, *, dev_share: float = 0.1):
        self.dev_share = dev_share

    def split(self, task: Task, data_seed: int) -> Split:
        """Return train, dev and test; `data_seed` decides a carved dev set."""
        if isinstance(task, Multi):
            return task.joined({n: self.split(own, data_seed) for n, own in task.tasks.items()})
        train = task.load("train")
        if task.has("dev") and task.has("test"):
            origin = {"dev": "published dev", "test": "published test"}
            return Split(train, task.load("dev"), task.load("test"), origin)
        rest, test, reported = self._reported(task, train, data_seed)
        rest, dev, drawn = self._carved(task, rest, data_seed, "dev")
        return Split(rest, dev, test, {"dev": drawn, "test": reported})

    def _reported(
        self, task: Task, train: list[Example], data_seed: int
    ) -> tuple[list[Example], list[Example], str]:
        """Return what is left of train, the reported examples, and where those came from."""
        if task.has("test"):
            return train, task.load("test"), "published test"
        if task.has("dev"):
            return train, task.load("dev"), "published dev"
        return self._carved(task, train, data_seed, "test")

    def _carved(
        self, task: Task, train: list[Example], data_seed: int, part: Literal["dev", "test"]
    ) -> tuple[list[Example], list[Example], str]:
        """Return what is left of train, the part taken from it, and how it was taken."""
        by_class = task.kind == "classification"
        rest, taken = carve(train, self.dev_share, data_seed, part, by_class=by_class)
        share = f"{len(taken) / len(train):.0%} of "
        grouped = taken[0].group is not None
        return rest, taken, share + ("each class of train" if by_class and not grouped else "train")
