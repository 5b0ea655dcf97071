"""The base class of the group `readout`: which read-out a task has, and with which keys."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from ptrun.backbone.family import Family
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.config.components import typed
from ptrun.errors import UserError
from ptrun.pattern.pattern import PVP, read_pvps
from ptrun.pattern.slots import Field, Hole
from ptrun.readout.base import Readout
from ptrun.task.dataset import Task
from ptrun.task.multilabel import NONE


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

    @abstractmethod
    def fits(self, backbone: PretrainedBackbone, task: Task, *, soft: bool) -> None:
        """Refuse a backbone or a task without loading weights; `soft` as in `made`.

        Raises:
            UserError: it cannot be read; the message names the reason.
        """

    def used(self, backbone: PretrainedBackbone, task: Task, *, soft: bool) -> set[str]:
        """Return the keys that can change a number on this backbone and task."""
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
        self.fits(backbone, task, soft=soft)
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


# Chooses a task's pattern for a method: the one that is named, or the first that suits.
#
# A blank infiller prefers patterns whose names start with `glm`.

_TEXTS = ("option", "entity")  # answers that may be a text of the example


def choose(
    task: Task,
    backbone: PretrainedBackbone,
    *,
    soft: bool,
    name: str | None = None,
    listed: bool = False,
) -> PVP:
    """Return a pattern of a task.

    `soft` says whether it has learned vectors. `listed` says that it lists its label words, which
    are read there, and has no mask. Otherwise a pattern without a mask must be named: an
    encoder-decoder then answers with its decoder's first token.
    """
    pvps = read_pvps(task.pvps, worded(task))
    family = backbone.architecture
    misfits = {n: _misfit(pvp, task, family, soft=soft, listed=listed) for n, pvp in pvps.items()}
    fit = [n for n in pvps if not misfits[n]]
    if name is not None and name in fit:
        return pvps[name]
    if name is not None:
        reason = misfits.get(name) or "is no pattern"
        wrong = f"readout.pattern={name} {reason}; of task={task.name} these suit: "
        wrong += f"{', '.join(fit) or 'none'}."
    else:
        for n in fit if not listed else ():
            if not pvps[n].pattern.masks:
                misfits[n] = "has no {mask}, so readout.pattern must name it"
        order = sorted(misfits, key=lambda n: family.has_blank and not n.startswith("glm"))
        if chosen := next((pvps[n] for n in order if not misfits[n]), None):
            return chosen
        reasons = "; ".join(f"{n} {reason}" for n, reason in misfits.items())
        wrong = f"task={task.name} has no pattern for this method on this {backbone.family} "
        wrong += f"backbone ({reasons or 'it has none at all'})."
    slot = "{soft} slots" if soft else "no {soft} slot"
    read = "{words|commas}, no {mask}" if listed else "a {mask}"
    where = "task=csv: task.pattern=@FILE; other tasks: pvps in the task's YAML"
    raise UserError(f"{wrong}\nWrite one ({where}): with {slot} and {read}.")


def worded(task: Task) -> Sequence[str]:
    """Return what label words are for: the labels, and no label where a row may have several."""
    if task.answer != "labels":
        return task.labels
    if NONE in task.labels:
        raise UserError(
            f"task={task.name} has a label {NONE!r}, which label words need for no label; rename "
            "it, or use readout=head."
        )
    return [*task.labels, NONE]


def _misfit(pvp: PVP, task: Task, family: Family, *, soft: bool, listed: bool) -> str | None:
    """Return why a pattern does not suit, or None."""
    if bool(pvp.pattern.softs) != soft:
        return "has no {soft} slot" if soft else "has {soft} slots, which method=ptuning learns"
    if listed and pvp.pattern.listing("words") is None:
        return "has no {words|commas}"
    if listed:
        return "has a {mask}" if pvp.pattern.masks else None
    if pvp.pattern.masks == 0 and not family.has_decoder:
        return "has no {mask}, which an encoder-decoder alone can do without"
    last: Any = pvp.pattern.parts[-1]
    is_gap = isinstance(last, Field) and last.ending == "fact_start"
    is_gap |= isinstance(last, Hole) and last.kind != "soft"
    if family.left_to_right and not is_gap:
        return "does not end in {mask}, where a causal backbone is read"
    if not family.fills_masks and (pvp.pattern.masks > 1 or pvp.rule == "mean"):
        return "has several masks, which a masked backbone alone reads"
    if (task.answer not in _TEXTS and not task.fills_gap) or pvp.verbalizer(1) is not None:
        return None
    if task.fills_gap and not (family.fills_masks or family.has_blank):
        return "needs its gap filled, which masked and infilling backbones alone do"
    if family.fills_masks and not pvp.pattern.many_masks:
        return "has one {mask}, but its answers are texts of several tokens; write {masks}"
    return None


def can_fill(backbone: PretrainedBackbone) -> bool:
    """Return whether a backbone predicts the words of a gap inside a text."""
    return backbone.architecture.fills_masks or backbone.architecture.has_blank
