"""`readout=class_words`: ELECTRA's own head over class words in a row, a tree, or a passage."""

from dataclasses import dataclass
from typing import Any

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from ptrun.pattern.pattern import PVP
from ptrun.readout.base import Readout
from ptrun.readout.class_tree import ClassTree, Tree, made_tree, read_tree
from ptrun.readout.class_words import ClassWords, Direction, Order, Share, ordered
from ptrun.readout.head import ClassWeights
from ptrun.readout.reading import Reading, choose
from ptrun.readout.spans import PassageWords
from ptrun.task.dataset import Task


@dataclass(frozen=True, kw_only=True)
class ClassWordsReading(Reading):
    """ELECTRA's head over written-out classes, or over the words of a passage.

    Args:
        pattern: a name in the task's `pvps`; null is the first that lists its classes.
        direction, bias, loss, order, marker: see `ptrun.readout.class_words`.
        tree: for too many classes for one row: @FILE or the tree (`ptrun.readout.class_tree`).
        fan_out: build the tree instead, from the classes in `order`.
        beam: see `ptrun.readout.class_tree`.
        threshold, threshold_on: of a passage (`ptrun.readout.spans`).
        class_weights: as in `HeadReading`; of classes without a tree.
    """

    name = "class_words"
    answers = ("label", "spans")
    tunes_head = True

    pattern: str | None = None
    direction: Direction = "one_minus_sigma"
    bias: bool = False
    loss: Share = "mean"
    order: Order = "written"
    marker: bool = False
    tree: str | dict[str, Any] | list[Any] | None = None
    fan_out: int | None = None
    beam: int = 1
    threshold: float = 0.6
    threshold_on: Direction = "sigma"
    class_weights: ClassWeights = "none"

    def fits(self, backbone: PretrainedBackbone, task: Task, *, soft: bool) -> None:
        """Refuse a backbone that is no ELECTRA, and patterns or trees that do not suit."""
        if backbone.architecture.writes_words:
            raise UserError(
                f"backbone={backbone.name} has no head that detects replaced words, which "
                "readout=class_words needs; use backbone=electra_base or another ELECTRA."
            )
        if task.answer == "label":
            self._tree(task, self._pvp(backbone, task, soft))

    def used(self, backbone: PretrainedBackbone, task: Task, *, soft: bool) -> set[str]:
        """Return the keys of a passage, or of classes; `beam` needs a tree."""
        if task.answer == "spans":
            return {"direction", "threshold", "threshold_on"}
        keys = {"pattern", "direction", "bias", "loss", "order", "marker", "tree", "fan_out"}
        grown = self.tree is not None or self.fan_out is not None
        return keys | ({"beam"} if grown else {"class_weights"})

    def made(self, backbone: PretrainedBackbone, task: Task, *, soft: bool) -> Readout:
        """Return the read-out of a passage, a row of classes, or a tree of them."""
        if task.answer == "spans":
            border, on = self.threshold, self.threshold_on
            return PassageWords(backbone, task, direction=self.direction, threshold=border, on=on)
        pvp = self._pvp(backbone, task, soft)
        tree = self._tree(task, pvp)
        keys: dict[str, Any] = {"direction": self.direction, "bias": self.bias}
        keys |= {"share": self.loss, "marker": self.marker}
        if tree is None or not any(tree.values()):  # one level: a list
            order = self.order if tree is None else list(tree)
            keys["weights"] = self.class_weights
            return ClassWords(backbone, task, pvp, order=order, **keys)
        return ClassTree(backbone, task, pvp, tree, beam=self.beam, **keys)

    def _pvp(self, backbone: PretrainedBackbone, task: Task, soft: bool) -> PVP:
        return choose(task, backbone, soft=soft, name=self.pattern, listed=True)

    def _tree(self, task: Task, pvp: PVP) -> Tree | None:
        """Return the tree of classes: the configured one, one made with `fan_out`, or None."""
        if self.tree is None:
            if self.fan_out is None:
                return None
            words = ordered(pvp.words or {}, self.order)
            return made_tree({label: own[0] for label, own in words.items()}, self.fan_out)
        if self.fan_out is not None or self.order != "written":
            other = "fan_out" if self.fan_out is not None else "order"
            raise UserError(
                f"readout.{other} sets an order of classes, but readout.tree has its own; "
                f"leave readout.{other} out."
            )
        return read_tree(self.tree, task.labels)
