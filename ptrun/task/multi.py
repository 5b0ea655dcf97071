"""Several data sets as one task: one prompt learned on all of them, a head for each (MPT-2)."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, ClassVar

from ptrun.errors import UserError
from ptrun.task.base import PARTS, Part, Task
from ptrun.task.shown import shown
from ptrun.task.source import Row
from ptrun.types import Example, Prediction, Split

_BORDER = ":"
_SET = "task"  # the field of a row to be asked about that names its data set
_TOLD = ("dev", "test")  # of which parts a protocol tells the origin


class Multi:
    """The examples of several tasks, each marked by its task's name before its id.

    Args:
        data_dir, variant: not used; the tasks were built with them.
        name: the name in tables and folders.
        version: raise it when the list changes.
        tasks: built tasks by name, two or more.
    """

    kind: ClassVar[str] = "multi"
    metric = "mean"
    fields: Sequence[str] = ()
    labels: Sequence[str] = ()
    pvps: ClassVar[Mapping[str, Any]] = {}
    descriptions: ClassVar[Mapping[str, str]] = {}
    pvps_from: str | None = None
    max_tokens: int | None = None

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
        if len(tasks) < 2 or any(_BORDER in own for own in tasks):
            raise UserError(f"task {name}: tasks are {list(tasks)}; expected two or more names.")

    def has(self, part: Part, *, paper: bool = False) -> bool:
        """Return whether all the tasks have this part."""
        return all(task.has(part, paper=paper) for task in self.tasks.values())

    def load(self, part: Part, *, paper: bool = False) -> list[Example]:
        """Return the examples of all tasks, task after task."""
        loaded = {name: task.load(part, paper=paper) for name, task in self.tasks.items()}
        return _marked(loaded)

    def joined(self, splits: Mapping[str, Split]) -> Split:
        """Return the tasks' own splits, by name, as one.

        So each is cut as it is when it is learned alone: what one prompt was learned on together is
        never what a run that starts from it reports.
        """
        train, dev, test = (
            _marked({n: getattr(s, part) for n, s in splits.items()}) for part in PARTS
        )
        told = {key: "; ".join(f"{n}: {s.origin[key]}" for n, s in splits.items()) for key in _TOLD}
        return Split(train, dev, test, told)

    @property
    def reads(self) -> Sequence[str]:
        """The field that names a row's data set; it then needs what that one reads."""
        return [_SET]

    def unlabelled(self, name: str, row: Row) -> Example:
        """Return the example of a row as its own task asks it, its answer not read.

        Raises:
            UserError: it is of no task, or not what that one reads.
        """
        own = row.text(_SET)
        if own not in self.tasks:
            known = ", ".join(self.tasks)
            raise UserError(f"{row.where}: {_SET} is {shown(own)}; expected one of {known}.")
        example = self.tasks[own].unlabelled(name, row)
        return replace(example, id=f"{own}{_BORDER}{name}")

    def score(
        self, predictions: Sequence[Prediction], examples: Sequence[Example]
    ) -> dict[str, float]:
        """Return the mean of the tasks' own metrics, which selects, and each task's metrics."""
        owners = [member_of(example) for example in examples]
        scores: dict[str, float] = {}
        main = []
        for name, task in self.tasks.items():
            places = [i for i, owner in enumerate(owners) if owner == name]
            if places:
                own = task.score([predictions[i] for i in places], [examples[i] for i in places])
                scores |= {f"{name}_{metric}": value for metric, value in own.items()}
                main.append(own[task.metric])
        return {"mean": fmean(main), **scores}

    def digest(self) -> str:
        """Return what identifies the data of all tasks."""
        told = "\n".join(f"{name} {task.digest()}" for name, task in self.tasks.items())
        return hashlib.sha256(told.encode()).hexdigest()[:16]


def _marked(examples: Mapping[str, Sequence[Example]]) -> list[Example]:
    """Return the examples of all tasks, task after task, their tasks' names before their ids."""
    return [
        replace(example, id=f"{name}{_BORDER}{example.id}")
        for name, own in examples.items()
        for example in own
    ]


def member_of(example: Example) -> str:
    """Return the name of the task an example of a `Multi` is from."""
    return example.id.split(_BORDER, 1)[0]
