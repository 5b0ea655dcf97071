"""Classification: one label for a text or a pair of texts."""

from collections.abc import Mapping, Sequence
from typing import Any

from ptrun.errors import UserError
from ptrun.task.dataset import Dataset
from ptrun.task.metric import accuracy
from ptrun.task.source import Row
from ptrun.types import Example, Prediction


class Classification(Dataset):
    """Texts with one label each.

    Args beyond those of `Dataset`:
        fields: the one or two text fields, in the order the model reads them.
        label: the field of the label.
        labels: label name to the raw value that means it in the files.
    """

    kind = "classification"
    metric = "accuracy"

    def __init__(
        self,
        data_dir: str | None,
        *,
        name: str,
        version: int,
        source: dict[str, Any],
        splits: dict[str, str | None],
        fields: list[str],
        label: str,
        labels: dict[str, str | int],
        max_tokens: int | None = None,
    ):
        super().__init__(data_dir, name, version, source, splits, max_tokens)
        self.labels: Sequence[str] = list(labels)
        self.fields = fields
        self._label = label
        self._names: Mapping[Any, str] = {raw: label for label, raw in labels.items()}

    def score(
        self, predictions: Sequence[Prediction], examples: Sequence[Example]
    ) -> dict[str, float]:
        """Return the accuracy, 0-100."""
        return {"accuracy": accuracy([p.value for p in predictions], [e.target for e in examples])}

    def example(self, fallback: str, row: Row) -> Example:
        """Return the example of a row, checked."""
        texts = {field: self._text(row, field) for field in self.fields}
        return Example(str(row.data.get("id", fallback)), texts, self._name(row))

    def _text(self, row: Row, field: str) -> str:
        text = row.value(field)
        if not isinstance(text, str):
            raise UserError(f"{row.where}: field {field!r} is {text!r}; expected text.")
        return text

    def _name(self, row: Row) -> str:
        """Map a raw label by name; a file may hold the name itself."""
        raw = row.value(self._label)
        if isinstance(raw, str) and raw in self.labels:
            return raw
        if isinstance(raw, bool | str | int) and raw in self._names:
            return self._names[raw]
        allowed = ", ".join(f"{name} ({raw!r})" for raw, name in self._names.items())
        raise UserError(f"{row.where}: {self._label} is {raw!r}; task {self.name} has {allowed}.")
