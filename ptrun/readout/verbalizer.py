"""`readout=verbalizer`: words of a pattern through the frozen language-model head."""

from collections.abc import Callable
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
from ptrun.readout.patterns import choose
from ptrun.readout.reading import Reading
from ptrun.readout.written import Written
from ptrun.task.base import Task

_FILLS: dict[str, Callable[..., Readout]] = {"masked": Fill, "infilling": Written}


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
    kinds = ("classification", "choice", "entity_choice", "span_check", "facts")
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
        bordered = pvp.pattern.bordered and backbone.family != "infilling"
        keys |= {"literal_sep"} if bordered else set()
        marks = backbone.family == "seq2seq" and pvp.pattern.masks > 0
        if marks and (task.kind == "facts" or _has_label_words(task, pvp)):
            keys.add("sentinel")
        return {"pattern", *keys}

    def _of_answer(
        self, backbone: PretrainedBackbone, task: Task, pvp: PVP, soft: bool
    ) -> set[str]:
        if task.kind == "facts":
            shifts = {"shifted_label"} if backbone.family == "causal" else set()
            asks = not soft and backbone.family in ("masked", "causal")
            return shifts | ({"released_query"} if asks else set())
        if _has_label_words(task, pvp):
            return {"among", *({"closed"} if self._can_close(backbone) else ())}
        if task.kind == "span_check":
            return {"random_masks"} if backbone.family == "masked" else set()
        swaps = {"swapped"} if task.kind == "choice" else set()
        return {"scored", *swaps, *self._objective(backbone, task)}

    def _objective(self, backbone: PretrainedBackbone, task: Task) -> set[str]:
        """Return the key if it can have its value: one row has no tokens after each answer."""
        one_row = task.kind == "choice" and backbone.family == "masked"
        return {"objective"} if one_row or not self.whole else set()

    def made(self, backbone: PretrainedBackbone, task: Task, *, soft: bool) -> Readout:
        """Return the read-out of the kind of answer."""
        pvp = self._pvp(backbone, task, soft)
        if task.kind == "facts":
            keys = self._values("sentinel", "literal_sep", "shifted_label", "released_query")
            return FactWords(backbone, task, pvp, **keys)
        if _has_label_words(task, pvp):
            closed = self._can_close(backbone) if self.closed == "auto" else self.closed
            keys = self._values("sentinel", "literal_sep")
            return LabelWords(
                backbone, task, pvp, among=self._among(backbone), closed=closed, **keys
            )
        if task.kind == "span_check":
            keys = self._values("literal_sep", "random_masks")
            return _FILLS[backbone.family](backbone, task, pvp, **keys)
        made = OneRow if self.whole else Candidates
        keys = self._values("literal_sep", "objective", "scored", "swapped")
        return made(backbone, task, pvp, **keys)

    def _pvp(self, backbone: PretrainedBackbone, task: Task, soft: bool) -> PVP:
        return choose(task, backbone.family, soft=soft, name=self.pattern)

    def _values(self, *keys: str) -> dict[str, Any]:
        return {key: getattr(self, key) for key in keys}

    def _among(self, backbone: PretrainedBackbone) -> Among:
        auto: Among = "vocabulary" if backbone.family == "seq2seq" else "labels"
        return auto if self.among == "auto" else self.among

    def _can_close(self, backbone: PretrainedBackbone) -> bool:
        """Return whether a sentinel comes before the answer, so that one can end it."""
        marked = backbone.family == "seq2seq" and self.sentinel
        return marked and self._among(backbone) == "vocabulary"


def _has_label_words(task: Task, pvp: PVP) -> bool:
    """Return whether label words or option letters are predicted, not texts of the example."""
    return pvp.verbalizer(1 if task.kind == "choice" else 0) is not None and task.kind != "facts"


def _check_words(backbone: PretrainedBackbone, task: Task, pvp: PVP) -> None:
    if not backbone.writes_words:
        raise UserError(
            f"backbone={backbone.name} has no language-model head (its head detects replaced "
            "words); use readout=head or another backbone."
        )
    if task.kind == "span_check" and backbone.family not in _FILLS:
        raise UserError(
            f"task={task.name} needs a backbone that fills masks, and {backbone.name} is "
            f"{backbone.family}; use readout=head."
        )
    if task.kind == "classification" and pvp.words is None:
        words = ", ".join(f"{label}: [WORD]" for label in task.labels[:3])
        words += ", ..." if len(task.labels) > 3 else ""
        raise UserError(
            f"pattern {pvp.name} of task={task.name} has no label words; write into its YAML "
            f"(task=csv: task.pattern=@FILE)\nwords: {{{words}}}."
        )
