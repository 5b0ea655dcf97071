"""`readout=verbalizer`: words of a pattern through the frozen language-model head."""

from dataclasses import dataclass
from typing import Any, Literal

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from ptrun.prompt.pvp import PVP
from ptrun.readout.base import Readout
from ptrun.readout.candidates import Candidates, Objective, Scored
from ptrun.readout.fact_words import FactWords
from ptrun.readout.fill import Fill
from ptrun.readout.label_words import Among, LabelWords
from ptrun.readout.one_row import OneRow
from ptrun.readout.patterns import can_fill, choose
from ptrun.readout.reading import Reading
from ptrun.readout.written import Written
from ptrun.task.base import Task


@dataclass(frozen=True, kw_only=True)
class VerbalizerReading(Reading):
    """Words through the frozen language-model head.

    Args:
        pattern: a name in the task's `pvps`; null is the first that suits.
        among, closed: of label words (`ptrun.readout.label_words`). `auto` is the vocabulary for
            an encoder-decoder, else the labels; and for `closed`, whether there are sentinels.
        objective, scored, swapped: of texts of the example (`ptrun.readout.candidates`).
        random_masks: of a gap (`ptrun.readout.fill`).
        literal_sep, sentinel: of a pattern (`ptrun.readout.cloze`).
        shifted_label, released_query: of facts (`ptrun.readout.fact_words`).
    """

    name = "verbalizer"
    answers = ("label", "option", "entity", "word")
    tunes_head = True
    idle = ("literal_sep",)

    pattern: str | None = None
    among: Among | Literal["auto"] = "auto"
    closed: bool | Literal["auto"] = False
    objective: Objective = "margin"
    scored: Scored = "sum"
    swapped: bool = False
    random_masks: bool = False
    literal_sep: bool = False
    sentinel: bool = True
    shifted_label: bool = False
    released_query: bool = False

    @property
    def whole(self) -> bool:
        """Whether the margin is one number for all rows of a step."""
        return self.objective == "batch_margin"

    def fits(self, backbone: PretrainedBackbone, task: Task, *, soft: bool) -> None:
        """Refuse a backbone that writes no words, and a task without a pattern for it."""
        pvp = self._pvp(backbone, task, soft)
        _check_words(backbone, task, pvp)
        if self.among == "vocabulary" and (pvp.rule == "mean" or pvp.pattern.masks > 1):
            raise UserError(
                f"readout.among=vocabulary reads one token, but pattern {pvp.name} reads several "
                "masks; type readout.among=labels, or name another readout.pattern."
            )

    def used(self, backbone: PretrainedBackbone, task: Task, *, soft: bool) -> set[str]:
        """Return the keys that the kind of answer, the pattern and the family have."""
        pvp = self._pvp(backbone, task, soft)
        keys = self._of_answer(backbone, task, pvp, soft)
        bordered = pvp.pattern.bordered and not backbone.architecture.has_blank
        keys |= {"literal_sep"} if bordered else set()
        marks = backbone.architecture.has_decoder and pvp.pattern.masks > 0
        if marks and (task.answer == "word" or _has_label_words(task, pvp)):
            keys.add("sentinel")
        return {"pattern", *keys}

    def _of_answer(
        self, backbone: PretrainedBackbone, task: Task, pvp: PVP, soft: bool
    ) -> set[str]:
        if task.answer == "word":
            shifts = {"shifted_label"} if backbone.architecture.left_to_right else set()
            asks = not (soft or backbone.architecture.writes_apart)
            return shifts | ({"released_query"} if asks else set())
        if _has_label_words(task, pvp):
            return {"among", *({"closed"} if self._can_close(backbone) else ())}
        if task.fills_gap:
            return {"random_masks"} if backbone.architecture.fills_masks else set()
        swaps = {"swapped"} if task.answer == "option" else set()
        return {"scored", *swaps, *self._objective(backbone, task)}

    def _objective(self, backbone: PretrainedBackbone, task: Task) -> set[str]:
        """Return the key if it can have its value: one row has no tokens after each answer."""
        one_row = task.answer == "option" and backbone.architecture.fills_masks
        return {"objective"} if one_row or not self.whole else set()

    def made(self, backbone: PretrainedBackbone, task: Task, *, soft: bool) -> Readout:
        """Return the read-out of the kind of answer."""
        pvp = self._pvp(backbone, task, soft)
        if task.answer == "word":
            keys = self._values("sentinel", "literal_sep", "shifted_label", "released_query")
            return FactWords(backbone, task, pvp, **keys)
        if _has_label_words(task, pvp):
            closed = self._can_close(backbone) if self.closed == "auto" else self.closed
            keys = self._values("sentinel", "literal_sep")
            return LabelWords(
                backbone, task, pvp, among=self._among(backbone), closed=closed, **keys
            )
        if task.fills_gap:
            keys = self._values("literal_sep", "random_masks")
            fill = Fill if backbone.architecture.fills_masks else Written
            return fill(backbone, task, pvp, **keys)
        made = OneRow if self.whole else Candidates
        keys = self._values("literal_sep", "objective", "scored", "swapped")
        return made(backbone, task, pvp, **keys)

    def _pvp(self, backbone: PretrainedBackbone, task: Task, soft: bool) -> PVP:
        return choose(task, backbone, soft=soft, name=self.pattern)

    def _values(self, *keys: str) -> dict[str, Any]:
        return {key: getattr(self, key) for key in keys}

    def _among(self, backbone: PretrainedBackbone) -> Among:
        auto: Among = "vocabulary" if backbone.architecture.has_decoder else "labels"
        return auto if self.among == "auto" else self.among

    def _can_close(self, backbone: PretrainedBackbone) -> bool:
        """Return whether a sentinel comes before the answer, so that one can end it."""
        marked = backbone.architecture.has_decoder and self.sentinel
        return marked and self._among(backbone) == "vocabulary"


def _has_label_words(task: Task, pvp: PVP) -> bool:
    """Return whether label words or option letters are predicted, not texts of the example."""
    return pvp.verbalizer(1 if task.answer == "option" else 0) is not None and task.answer != "word"


def _check_words(backbone: PretrainedBackbone, task: Task, pvp: PVP) -> None:
    if not backbone.architecture.writes_words:
        raise UserError(
            f"backbone={backbone.name} has no language-model head (its head detects replaced "
            "words); use readout=head or another backbone."
        )
    if task.fills_gap and not can_fill(backbone):
        raise UserError(
            f"task={task.name} needs a backbone that fills masks, and {backbone.name} is "
            f"{backbone.family}; use readout=head."
        )
    if task.answer == "label" and not task.fills_gap and pvp.words is None:
        words = ", ".join(f"{label}: [WORD]" for label in task.labels[:3])
        words += ", ..." if len(task.labels) > 3 else ""
        raise UserError(
            f"pattern {pvp.name} of task={task.name} has no label words; write into its YAML "
            f"(task=csv: task.pattern=@FILE)\nwords: {{{words}}}."
        )
