"""Regression: one number for a text or a pair of texts, scored by correlation."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Unpack

from ptrun.errors import UserError
from ptrun.metrics.correlation import pearson, pearson_and_spearman, spearman
from ptrun.task.base import Part, Scores
from ptrun.task.dataset import Common, Dataset
from ptrun.task.shown import shown
from ptrun.task.source import Row
from ptrun.types import Example, Prediction

_LOG = logging.getLogger(__name__)
_ENOUGH = 50  # numbers of a part; fewer may all be small by chance


class Regression(Dataset):
    """Texts with one number each.

    Args beyond those of `Common`:
        fields: the one or two text fields, in the order the model reads them.
        label: the field of the number.
        low, high: bounds of the number, inclusive.
        unit: the loss compares numbers divided by it. Predictions are on the scale of the files. A
            file of 50 rows or more without a number above `high / unit` is read as already divided.

    Raises:
        UserError: `unit` is not above 0.
    """

    kind: ClassVar[str] = "regression"
    answer: ClassVar[str] = "number"
    metric = "pearson_spearman"

    def __init__(
        self,
        data_dir: str | None,
        variant: str | None = None,
        *,
        fields: list[str],
        label: str,
        low: float,
        high: float,
        unit: float = 1.0,
        **common: Unpack[Common],
    ):
        super().__init__(data_dir, variant, **common)
        self.fields = self.columns = fields
        self.blank, self._label, self.low, self.high = float(low), label, low, high
        self.unit = float(unit)
        if self.unit <= 0:
            raise UserError(f"task.unit is {unit}; use a number above 0.")

    def load(self, part: Part, *, paper: bool = False) -> Sequence[Example]:
        """Return the examples of a part; numbers that a file has divided by `unit` are restored."""
        examples = super().load(part, paper=paper)
        most = self.high / self.unit
        divided = self.unit > 1 and all(e.target <= most for e in examples)
        if not divided or len(examples) < _ENOUGH:
            return examples
        _LOG.warning(
            "task %s: none of the %d numbers of %s is above %g, so they are read as divided by %g "
            "and multiplied. If they are not, type task.unit=1",
            *(self.name, len(examples), part, most, self.unit),
        )
        return [replace(e, target=e.target * self.unit) for e in examples]

    def score(self, predictions: Sequence[Prediction], examples: Sequence[Example]) -> Scores:
        """Return Pearson's and Spearman's correlation and their mean, -100 to 100.

        Raises:
            UserError: there are fewer than two examples.
        """
        guesses, golds = [p.value for p in predictions], [e.target for e in examples]
        if len(golds) < 2:
            raise UserError(
                f"task={self.name} is scored by correlation, which is undefined for one example; "
                "give dev and test two examples or more."
            )
        return {
            "pearson_spearman": pearson_and_spearman(guesses, golds),
            "pearson": pearson(guesses, golds),
            "spearman": spearman(guesses, golds),
        }

    def target(self, row: Row, unlabelled: Example) -> float:
        """Return the number."""
        raw: Any = row.value(self._label)
        number = isinstance(raw, int | float) and not isinstance(raw, bool)
        if not number or not self.low <= raw <= self.high:
            raise UserError(
                f"{row.where}: {self._label} is {shown(raw)}; expected a number from {self.low} to "
                f"{self.high}."
            )
        return float(raw)
