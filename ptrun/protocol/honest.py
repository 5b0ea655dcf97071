"""The honest protocol: dev selects, test is scored once afterwards.

Where a data set publishes no labelled test, its dev set is the test set and dev is carved from
train, so that nothing is both selected on and reported.
"""

from ptrun.protocol.base import carve
from ptrun.task.base import Task
from ptrun.types import Split


class Honest:
    """Disjoint selection and report.

    Args:
        dev_share: share of train that becomes dev where the data set has none to spare.
    """

    select_best = True

    def __init__(self, *, dev_share: float = 0.1):
        self.dev_share = dev_share

    def split(self, task: Task, data_seed: int) -> Split:
        """Return train, dev and test; `data_seed` decides a carved dev set."""
        train = task.load("train")
        if task.has("dev") and task.has("test"):
            origin = {"dev": "published dev", "test": "published test"}
            return Split(train, task.load("dev"), task.load("test"), origin)
        reported = "test" if task.has("test") else "dev"
        rest, dev = carve(train, self.dev_share, data_seed)
        origin = {"dev": f"{self.dev_share:.0%} of train", "test": f"published {reported}"}
        return Split(rest, dev, task.load("test" if reported == "test" else "dev"), origin)
