"""Classification: one label for a text or a pair of texts."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Unpack

from ptrun.errors import UserError
from ptrun.metrics.labels import Metric, score
from ptrun.task.base import Scores
from ptrun.task.dataset import Common, Dataset
from ptrun.task.shown import shown
from ptrun.task.source import Row
from ptrun.types import Example, Prediction


class Classification(Dataset):
    """Texts with one label each.

    Args beyond those of `Common`:
        fields: the one or two text fields, in the order the model reads them.
        label: the field of the label.
        labels: each label's name, with its raw value in the files.
        metrics: the metrics to report; the first selects. `f1` and `accuracy_f1` need `positive`.
        positive: the label that binary F1 is about.
        extra: further fields that patterns use.
    """

    kind: ClassVar[str] = "classification"
    stratified: ClassVar[bool] = True

    def __init__(
        self,
        data_dir: str | None,
        variant: str | None = None,
        *,
        fields: list[str],
        label: str,
        labels: dict[str, str | int | bool],
        metrics: list[Metric] | None = None,
        positive: str | None = None,
        extra: list[str] | None = None,
        **common: Unpack[Common],
    ):
        super().__init__(data_dir, variant, **common)
        self.labels: Sequence[str] = list(labels)
        self.fields, self.columns = fields, [*fields, *(extra or [])]
        self.metrics: list[Metric] = list(metrics or ["accuracy"])
        self.metric, self.positive = self.metrics[0], positive
        self.blank, self._label = self.labels[0], label
        self._raw: Mapping[Any, str] = {raw: name for name, raw in labels.items()}
        if not all(isinstance(label, str) for label in labels):
            raise UserError(
                f"task {self.name}: labels are {list(labels)}; they must be texts. "
                "Quote yes, no, on and off, which YAML reads as booleans."
            )
        if not 1 <= len(fields) <= 2:
            raise UserError(
                f"task {self.name}: fields is {fields}; expected one or two. Join several fields "
                "into one in task.written, and list fields that patterns use in task.extra."
            )
        if positive is None and {"f1", "accuracy_f1"} & set(self.metrics):
            raise UserError(f"task {self.name}: F1 needs task.positive, one of {self.labels}.")

    def score(self, predictions: Sequence[Prediction], examples: Sequence[Example]) -> Scores:
        """Return the metrics of the task, 0-100."""
        guesses, golds = [p.value for p in predictions], [e.target for e in examples]
        return {name: score(name, guesses, golds, positive=self.positive) for name in self.metrics}

    def target(self, row: Row, unlabelled: Example) -> str:
        """Return the label of a raw value; a file may also hold the label's name."""
        raw = row.value(self._label)
        if isinstance(raw, str) and raw in self.labels:
            return raw
        if isinstance(raw, bool | str | int) and raw in self._raw:
            return self._raw[raw]
        allowed = ", ".join(f"{name} ({value!r})" for value, name in self._raw.items())
        raise UserError(
            f"{row.where}: {self._label} is {shown(raw)}; task {self.name} has {allowed}."
        )
