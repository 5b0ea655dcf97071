"""Several data sets as one task: one prompt is learned on all, with a head for each (MPT-2)."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from ptrun.errors import UserError, shown
from ptrun.hub.repository import Repository
from ptrun.task.dataset import PARTS, SEVERAL, Part, Scores, Task
from ptrun.task.source import Row
from ptrun.types import Example, Prediction, Split

_SEPARATOR = ":"
_TASK_FIELD = "task"  # the field of an unlabelled row that names its task
_HELD_OUT = ("dev", "test")  # the parts whose origin a protocol records


class Multi(Task):
    """The examples of several tasks; the id of each begins with the name of its task.

    Args:
        data_dir, variant: not used; the tasks are already built with them.
        name: the name in tables and folders.
        version: increase it when the list of tasks changes.
        tasks: built tasks by name, two or more.
    """

    kind, answer, metric = "multi", SEVERAL, "mean"
    reads: Sequence[str] = (_TASK_FIELD,)
    """A row also needs the fields that its task reads."""

    def __init__(
        self,
        data_dir: str | None,
        variant: str | None = None,
        *,
        name: str,
        version: int,
        tasks: dict[str, Any],
    ):
        self.name, self.version = name, version
        self.tasks: dict[str, Task] = tasks
        if len(tasks) < 2 or any(_SEPARATOR in member for member in tasks):
            raise UserError(
                f"task {name}: {list(tasks)}; expected two or more names without {_SEPARATOR!r}."
            )

        for member, task in tasks.items():
            if task.recognised:
                raise UserError(f"task {name}: {member} lacks columns: type {task.recognised}.")

    @property
    def repositories(self) -> Sequence[Repository]:
        """The hub repositories of all tasks."""
        return [hub for task in self.tasks.values() for hub in task.repositories]

    def has(self, part: Part, *, paper: bool = False) -> bool:
        """Return whether all the tasks have this part."""
        return all(task.has(part, paper=paper) for task in self.tasks.values())

    def load(self, part: Part, *, paper: bool = False) -> list[Example]:
        """Return the examples of all tasks, task by task."""
        return _joined({name: task.load(part, paper=paper) for name, task in self.tasks.items()})

    def joined(self, splits: Mapping[str, Split]) -> Split:
        """Return one split from the tasks' own splits by name.

        Each task is split as when it is learned alone. So a run that starts from the shared prompt
        never reports on examples that the prompt was learned on.
        """
        train, dev, test = (
            _joined({name: getattr(split, part) for name, split in splits.items()})
            for part in PARTS
        )
        origin = {
            part: "; ".join(f"{name}: {split.origin[part]}" for name, split in splits.items())
            for part in _HELD_OUT
        }
        return Split(train, dev, test, origin)

    def unlabelled(self, name: str, row: Row) -> Example:
        """Return the example of a row from its own task, without reading the label."""
        member = row.text(_TASK_FIELD)
        if member not in self.tasks:
            allowed = ", ".join(self.tasks)
            raise UserError(
                f"{row.where}: {_TASK_FIELD} is {shown(member)}; expected one of {allowed}."
            )
        return _marked(member, self.tasks[member].unlabelled(name, row))

    def score(self, predictions: Sequence[Prediction], examples: Sequence[Example]) -> Scores:
        """Return the mean of the tasks' own metrics, which selects, and each task's metrics."""
        members = [member_of(example) for example in examples]
        scores: Scores = {}
        selecting = []
        for name, task in self.tasks.items():
            places = [i for i, member in enumerate(members) if member == name]
            if places:
                values = task.score([predictions[i] for i in places], [examples[i] for i in places])
                scores |= {f"{name}_{metric}": value for metric, value in values.items()}
                selecting.append(values[task.metric])
        return {"mean": fmean(selecting), **scores}

    def recorded(self) -> dict[str, Any]:
        """Return what each task read from its files."""
        return {"tasks": {name: task.recorded() for name, task in self.tasks.items()}}

    def digest(self) -> str:
        """Return what identifies the data of all tasks."""
        digests = "\n".join(f"{name} {task.digest()}" for name, task in self.tasks.items())
        return hashlib.sha256(digests.encode()).hexdigest()[:16]


def _joined(examples: Mapping[str, Sequence[Example]]) -> list[Example]:
    """Return the examples of all tasks, task by task."""
    return [_marked(name, example) for name, part in examples.items() for example in part]


def _marked(name: str, example: Example) -> Example:
    return replace(example, id=f"{name}{_SEPARATOR}{example.id}")


def member_of(example: Example) -> str:
    """Return the name of the task that an example of a `Multi` comes from."""
    return example.id.split(_SEPARATOR, 1)[0]
