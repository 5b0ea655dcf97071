"""The papers' protocol: the splits that the authors used, from a task's `paper_splits`.

If dev is both selected on and reported, every table says so.
"""

from ptrun.task.base import Task
from ptrun.task.multi import Multi
from ptrun.types import Split


class Paper:
    """Published dev selects; published test is reported, or dev if there is no test.

    If the authors drew dev from train, dev is empty until a setting draws it.
    """

    select_best = True
    disjoint = False

    def split(self, task: Task, data_seed: int) -> Split:
        """Return the published splits."""
        if isinstance(task, Multi):
            return task.joined({n: self.split(t, data_seed) for n, t in task.tasks.items()})
        train = task.load("train", paper=True)
        dev = task.load("dev", paper=True) if task.has("dev", paper=True) else []
        test = task.load("test", paper=True) if task.has("test", paper=True) else dev
        same = [(e.id, e.fields) for e in dev] == [(e.id, e.fields) for e in test]
        reported = "published dev, selected on it too" if same else "published test"
        return Split(train, dev, test, {"dev": "published dev", "test": reported})
