"""`readout=class_words`: ELECTRA's own head over class words in a row, or a passage."""

from dataclasses import dataclass

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from ptrun.pattern.pattern import PVP
from ptrun.readout.base import Readout
from ptrun.readout.class_words import ClassWords, Direction, Order, Share
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
        threshold, threshold_on: of a passage (`ptrun.readout.spans`).
        class_weights: as in `HeadReading`; of classes.

    >>> from ptrun.readout.original import ClassWordsReading
    >>> ClassWordsReading(bias=True, order="reversed").changed
    {'bias': True, 'order': 'reversed'}
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
    threshold: float = 0.6
    threshold_on: Direction = "sigma"
    class_weights: ClassWeights = "none"

    def fits(self, backbone: PretrainedBackbone, task: Task, *, soft: bool) -> None:
        """Refuse a backbone that is no ELECTRA, and patterns that do not suit."""
        if backbone.architecture.writes_words:
            raise UserError(
                f"backbone={backbone.name} has no head that detects replaced words, which "
                "readout=class_words needs; use backbone=electra_base or another ELECTRA."
            )
        if task.answer == "label":
            self._pvp(backbone, task, soft)

    def used(self, backbone: PretrainedBackbone, task: Task, *, soft: bool) -> set[str]:
        """Return the keys of a passage, or of classes."""
        if task.answer == "spans":
            return {"direction", "threshold", "threshold_on"}
        return {"pattern", "direction", "bias", "loss", "order", "marker", "class_weights"}

    def made(self, backbone: PretrainedBackbone, task: Task, *, soft: bool) -> Readout:
        """Return the read-out of a passage, or of a row of classes."""
        if task.answer == "spans":
            border, on = self.threshold, self.threshold_on
            return PassageWords(backbone, task, direction=self.direction, threshold=border, on=on)
        pvp = self._pvp(backbone, task, soft)
        return ClassWords(
            backbone, task, pvp, direction=self.direction, bias=self.bias, share=self.loss,
            marker=self.marker, order=self.order, weights=self.class_weights,
        )  # fmt: skip

    def _pvp(self, backbone: PretrainedBackbone, task: Task, soft: bool) -> PVP:
        return choose(task, backbone, soft=soft, name=self.pattern, listed=True)
