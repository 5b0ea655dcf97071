"""The base class of the group `readout`: which read-out a task has, and with which keys."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.config.components import typed
from ptrun.errors import UserError
from ptrun.readout.base import Readout
from ptrun.task.dataset import Task


@dataclass(frozen=True, kw_only=True)
class Reading(ABC):
    """How predictions are read; its fields are the keys of `readout`, all with a default.

    `name` is its option, `answers` are the answers that it can give, `may_differ` the keys in
    which runs that share passes may differ. `idle` may be typed where they change nothing, since a
    table types them for all of its tasks; they are in no id there.
    """

    name: ClassVar[str]
    answers: ClassVar[Sequence[str]]
    may_differ: ClassVar[Sequence[str]] = ()
    idle: ClassVar[Sequence[str]] = ()
    keeps_backbone: ClassVar[bool] = False
    """Whether it reads the backbone without the method, so that a method may not change it."""
    tunes_head: ClassVar[bool] = False
    """Whether a method that tunes the backbone tunes its pre-trained head too."""

    @classmethod
    def reads(cls, task: Task) -> bool:
        """Return whether it can give the answers of a task."""
        return task.answer in cls.answers

    @property
    def whole(self) -> bool:
        """Whether the loss is one number for all rows of a step."""
        return False

    @property
    def changed(self) -> dict[str, Any]:
        """The values that differ from their defaults."""
        values = {field.name: (getattr(self, field.name), field.default) for field in fields(self)}
        return {key: value for key, (value, default) in values.items() if value != default}

    @classmethod
    def fingerprint_config(cls, node: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the configuration for the run id, with the content of files in place of paths."""
        return node

    @classmethod
    def recalled(cls, node: dict[str, Any], recorded: Mapping[str, Any]) -> dict[str, Any]:
        """Return the node of a finished run, without files that predictions do not need."""
        return node

    def stored(self, backbone: PretrainedBackbone) -> dict[str, Any]:
        """Return the changed keys as a run stores them."""
        return self.changed

    def used(self, backbone: PretrainedBackbone, task: Task, *, soft: bool) -> set[str]:
        """Return the keys that can change a number; refuse what cannot be read, without weights."""
        return {field.name for field in fields(self)}

    @abstractmethod
    def made(self, backbone: PretrainedBackbone, task: Task, *, soft: bool) -> Readout:
        """Return the read-out; `soft` says whether the pattern has learned vectors."""

    def check(
        self, backbone: PretrainedBackbone, task: Task, *, soft: bool, keys: Set[str] | None = None
    ) -> set[str]:
        """Refuse what cannot be read, and keys that would change nothing; return those that would.

        `keys` were typed; None is all that differ from their defaults. Those that are `idle` pass.
        """
        if not self.reads(task):
            raise UserError(
                f"readout={self.name} cannot answer task={task.name}, which is {task.kind}."
            )
        used, changed = self.used(backbone, task, soft=soft), self.changed
        asked = changed.keys() if keys is None else changed.keys() & keys
        for key in sorted(asked - used - {*self.idle}):
            raise UserError(
                f"readout.{key}={typed(changed[key])} changes nothing: readout={self.name} "
                f"does not use it on task={task.name}\n({task.kind}) with backbone={backbone.name} "
                f"({backbone.family}). Leave it out."
            )
        return used


def known(reading: type[Reading], node: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a node that a read-out has."""
    keys = {field.name for field in fields(reading)}
    return {key: value for key, value in node.items() if key in keys}
