"""`readout=class_words`: ELECTRA's own head over class words in a row, or a passage."""

from dataclasses import dataclass
from typing import Literal

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from ptrun.pattern.pattern import PVP
from ptrun.readout.base import ClassWeights, Readout
from ptrun.readout.class_words import ClassWords, Direction
from ptrun.readout.patterns import choose
from ptrun.readout.reading import Reading
from ptrun.readout.spans import PassageWords
from ptrun.task.dataset import Task


@dataclass(frozen=True, kw_only=True)
class ClassWordsReading(Reading):
    """ELECTRA's head over written-out classes, or over the words of a passage.

    Args:
        pattern: a name in the task's `pvps`; null is the first that lists its classes.
        direction: what is trained towards 1 on right classes or answers: `one_minus_sigma`
            (original) or `sigma`, the paper's ablation: the most replaced wins.
        bias: whether to learn a number for each class, 0 at first, that is added to z (code).
        loss: whether the loss is the `mean` over classes (code) or their `sum` (paper).
        threshold: of a passage: a probability, 0 to 1.
        threshold_on: the probability it applies to; answers are on the side that training moves
            them to. The answers of the same threshold on the other probability are reported too.
        class_weights: as in `HeadReading`; of classes.

    >>> from ptrun.readout.original import ClassWordsReading
    >>> ClassWordsReading(bias=True, loss="sum").changed
    {'bias': True, 'loss': 'sum'}
    """

    name = "class_words"
    answers = ("label", "spans")
    tunes_head = True

    pattern: str | None = None
    direction: Direction = "one_minus_sigma"
    bias: bool = False
    loss: Literal["mean", "sum"] = "mean"
    threshold: float = 0.6
    threshold_on: Direction = "sigma"
    class_weights: ClassWeights = "none"

    def used(self, backbone: PretrainedBackbone, task: Task, *, soft: bool) -> set[str]:
        """Return the keys of a passage, or of classes; refuse a backbone that is no ELECTRA."""
        if backbone.architecture.writes_words:
            raise UserError(
                f"backbone={backbone.name} has no head that detects replaced words, which "
                "readout=class_words needs; use backbone=electra_base or another ELECTRA."
            )
        if task.answer == "spans":
            return {"direction", "threshold", "threshold_on"}
        self._pvp(backbone, task, soft)
        return {"pattern", "direction", "bias", "loss", "class_weights"}

    def made(self, backbone: PretrainedBackbone, task: Task, *, soft: bool) -> Readout:
        """Return the read-out of a passage, or of a row of classes."""
        if task.answer == "spans":
            return PassageWords(backbone, task, self)
        return ClassWords(backbone, task, self._pvp(backbone, task, soft), self)

    def _pvp(self, backbone: PretrainedBackbone, task: Task, soft: bool) -> PVP:
        return choose(task, backbone, soft=soft, name=self.pattern, listed=True)
