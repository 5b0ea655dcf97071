"""Grouped binary classification: several answers to one question, each right or wrong (MultiRC)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Unpack

from ptrun.errors import UserError
from ptrun.metrics.multirc import multirc_scores
from ptrun.task.base import Scores
from ptrun.task.classification import Classification
from ptrun.task.dataset import Common
from ptrun.task.source import Row
from ptrun.types import Example, Prediction


class Grouped(Classification):
    """Classification whose exact match counts whole groups.

    Args beyond those of `Common`:
        fields, label, labels, extra: as in `Classification`, with two labels.
        positive: the label that F1 is about.
        group: the fields that are equal within a group; MultiRC's own index is not unique.
    """

    kind: ClassVar[str] = "classification"

    def __init__(
        self,
        data_dir: str | None,
        variant: str | None = None,
        *,
        fields: list[str],
        label: str,
        labels: dict[str, str | int | bool],
        positive: str,
        group: list[str],
        extra: list[str] | None = None,
        **common: Unpack[Common],
    ):
        keys: dict[str, Any] = {"fields": fields, "label": label, "labels": labels, "extra": extra}
        super().__init__(data_dir, variant, positive=positive, **keys, **common)
        if len(labels) != 2 or positive not in labels:
            raise UserError(
                f"task {self.name}: labels are {list(labels)} and positive is {positive!r}; "
                "a grouped task needs two labels, one of them positive."
            )
        self.metric, self._group = "f1a", group

    def score(self, predictions: Sequence[Prediction], examples: Sequence[Example]) -> Scores:
        """Return F1 over all answers, exact match of groups, and accuracy, 0-100."""
        guesses, golds = [p.value for p in predictions], [e.target for e in examples]
        groups = [e.group for e in examples]
        scores = multirc_scores(guesses, golds, groups, positive=self.positive)
        return {**scores, **super().score(predictions, examples)}

    def example(self, name: str, row: Row) -> Example:
        """Return the checked example of a row, with its group."""
        group = "\n".join(row.text(field) for field in self._group)
        return replace(super().example(name, row), group=group)
