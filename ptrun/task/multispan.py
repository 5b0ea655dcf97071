"""Multi-span question answering: all the spans that answer a question (QUOREF)."""

from collections.abc import Sequence
from typing import ClassVar, Unpack

from ptrun.errors import UserError
from ptrun.metrics.drop import drop_scores
from ptrun.task.dataset import Common
from ptrun.task.extraction import Answer, InContext, spans
from ptrun.task.source import Row
from ptrun.types import Example, Prediction


class MultiSpan(InContext):
    """Questions about contexts; the target is the list of all answers, a prediction of all texts.

    Args beyond those of `Common`:
        question, context, answers: the fields, as in `ptrun.task.extraction.Extraction`.
    """

    kind: ClassVar[str] = "multispan"
    metric = "f1"

    def __init__(
        self,
        data_dir: str | None,
        variant: str | None = None,
        *,
        question: str = "question",
        context: str = "context",
        answers: str = "answers",
        **common: Unpack[Common],
    ):
        super().__init__(data_dir, variant, **common)
        self.fields, self._answers = [question, context], answers

    def score(
        self, predictions: Sequence[Prediction], examples: Sequence[Example]
    ) -> dict[str, float]:
        """Return exact match and F1 over sets of spans, 0-100, by DROP's rules.

        Those of answers by other rules, which a prediction may have beside its own, have the rule's
        name after them.
        """
        golds = [[answer.text for answer in e.target] for e in examples]
        scores = drop_scores([p.value for p in predictions], golds)
        for rule in predictions[0].also if predictions else ():
            other = drop_scores([p.also[rule] for p in predictions], golds)
            scores |= {f"{name}_{rule}": value for name, value in other.items()}
        return scores

    def target(self, row: Row, unlabelled: Example) -> list[Answer]:
        """Return all answers, their offsets checked."""
        found = spans(row, self._answers, unlabelled.fields[self.fields[1]])
        if not found:
            raise UserError(f"{row.where}: no answer, but task {self.name} has some to each.")
        return found
