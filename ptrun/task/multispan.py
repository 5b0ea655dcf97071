"""Multi-span question answering: all the spans that answer a question (QUOREF)."""

from collections.abc import Sequence
from typing import ClassVar

from ptrun.metrics.drop import drop_scores
from ptrun.task.base import Scores
from ptrun.task.extraction import InContext
from ptrun.types import Example, Prediction


class MultiSpan(InContext):
    """Questions with several answers each; a prediction is the list of all answer texts."""

    kind: ClassVar[str] = "multispan"
    answer: ClassVar[str] = "spans"

    def score(self, predictions: Sequence[Prediction], examples: Sequence[Example]) -> Scores:
        """Return exact match and F1 over sets of spans, 0-100, by DROP's rules.

        A prediction may also hold answers by other decoding rules. Their scores have the rule's
        name as a suffix.
        """
        golds = [[answer.text for answer in e.target] for e in examples]
        scores = drop_scores([p.value for p in predictions], golds)
        for rule in predictions[0].also if predictions else ():
            other = drop_scores([p.also[rule] for p in predictions], golds)
            scores |= {f"{name}_{rule}": value for name, value in other.items()}
        return scores
