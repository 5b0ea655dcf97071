"""The papers' protocol: published splits as they are.

Where there is no labelled test, dev both selects and is reported; every table says so.
"""

from ptrun.task.base import Task
from ptrun.types import Split


class Paper:
    """Published dev selects; published test is reported, or dev itself where there is none."""

    select_best = True

    def split(self, task: Task, data_seed: int) -> Split:
        """Return the published splits."""
        dev = task.load("dev")
        test = task.load("test") if task.has("test") else dev
        reported = "published test" if task.has("test") else "published dev, selected on it too"
        return Split(task.load("train"), dev, test, {"dev": "published dev", "test": reported})
