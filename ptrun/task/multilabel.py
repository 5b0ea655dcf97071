"""Several labels a row, or none: how cells are read, and the metrics.

| cells of the label                               | labels      |
|--------------------------------------------------|-------------|
| `a;b`, `a | b`, or `a,b` where no cell has `;|`  | `a` and `b` |
| `["a", "b"]`, a list of JSON, parquet, doccano   | `a` and `b` |
| `{"choices": ["a", "b"]}` of Label Studio        | `a` and `b` |
| a column for each label, with 0 and 1            | those of 1  |
| empty, `[]`, null                                | none        |

A prediction is the list of the labels whose probability is above a threshold. Thresholds are chosen
on dev (`ptrun.readout.multilabel`).
"""

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Literal, Unpack, get_args

import numpy as np
from numpy.typing import NDArray

from ptrun.errors import UserError, names, near, shown
from ptrun.task.dataset import Common, Dataset, Scores
from ptrun.task.label import listed, normal
from ptrun.task.source import Row
from ptrun.types import Example, Labels, Prediction

MultilabelMetric = Literal["micro_f1", "macro_f1", "subset_accuracy", "average_precision"]
METRICS: Sequence[MultilabelMetric] = get_args(MultilabelMetric)
NONE = "none"
"""The key of the words that stand for no label, in a verbalizer."""
_SEPARATORS = ";|,"
_YES, _NO = {"1", "true", "yes", "x"}, {"0", "false", "no", ""}


class Multilabel(Dataset):
    """Texts with several labels each, or none. The target is a list of labels in their order.

    Args beyond those of `Common`:
        fields: the one or two text fields, in the order the model reads them.
        label: the field of the labels, or a list of fields with 0 and 1, whose names are labels.
        labels: all labels.
        metrics: the metrics to report; the first selects.
        separator: between labels in a text; null is `;`, `|` or `,`, the first that the cell has.
        extra: further fields that patterns use.
    """

    kind = "multilabel"
    answer = "labels"
    stratified = True

    def __init__(
        self,
        *files: str | None,
        fields: list[str],
        label: str | list[str],
        labels: list[str],
        metrics: list[MultilabelMetric] | None = None,
        separator: str | None = None,
        extra: list[str] | None = None,
        **common: Unpack[Common],
    ):
        super().__init__(*files, **common)
        self.fields, self.columns = fields, [*fields, *(extra or [])]
        self.labels, self.metrics = list(labels), list(metrics or METRICS)
        self.metric, self.blank = self.metrics[0], []
        self._label, self._separator = label, separator

    def target(self, row: Row, unlabelled: Example) -> Labels:
        """Return the labels of a row."""
        labels = labels_of(row, self._label, self._separator)
        for label in labels:
            if label not in self.labels:
                hint = f"{near(label, self.labels)}\nIt has {names(self.labels)}."
                raise UserError(
                    f"{row.where}: {shown(label)} is no label of task {self.name}{hint}"
                )
        return Labels(in_order(labels, self.labels))

    def score(self, predictions: Sequence[Prediction], examples: Sequence[Example]) -> Scores:
        """Return the metrics of the task, 0-100."""
        scores = label_scores(self.labels, predictions, [e.target for e in examples])
        return {name: scores[name] for name in self.metrics}


def labels_of(row: Row, label: str | Sequence[str], separator: str | None = None) -> list[str]:
    """Return the labels of a row, each once, in the order in which it has them.

    Args:
        row: of a file.
        label: the column of a list or text, or columns with 0 and 1.
        separator: between the labels of a text; None is the first of `;|,` that it has.
    """
    if not isinstance(label, str):
        return [name for name in label if _is_on(row, name)]
    raw = listed(row.data.get(label))
    if isinstance(raw, str):
        separator = separator or next((s for s in _SEPARATORS if s in raw), None)
        raw = raw.split(separator) if separator else [raw]
    if isinstance(raw, int | float) and raw == raw:
        raw = [raw]
    if isinstance(raw, list) and all(isinstance(value, str | int | float) for value in raw):
        return [label for label in dict.fromkeys(map(normal, raw)) if label]
    if raw is None or raw != raw:
        return []
    raise row.wrong(label, "a list, or texts with ; between them")


def _is_on(row: Row, column: str) -> bool:
    raw = row.data.get(column)
    text = "" if raw is None or raw != raw else normal(raw).lower()
    if text not in _YES | _NO:
        raise row.wrong(column, "0 or 1, as of a column for one label")
    return text in _YES


def in_order(chosen: Iterable[str], labels: Sequence[str]) -> list[str]:
    """Return labels in the order of the task."""
    names = set(chosen)
    return [label for label in labels if label in names]


# Metrics, as scikit-learn computes them, with zero_division=0.


def label_scores(
    labels: Sequence[str], predictions: Sequence[Prediction], targets: Sequence[Sequence[str]]
) -> dict[str, float]:
    """Return micro and macro F1, subset accuracy, and macro average precision, 0-100.

    Macro averages go over the labels that the targets or predictions have; average precision over
    those that the targets have, and needs probabilities.
    """
    guesses, golds = indicators(labels, (p.value for p in predictions)), indicators(labels, targets)
    hits = (guesses & golds).sum(axis=0)
    sizes = guesses.sum(axis=0) + golds.sum(axis=0)
    each = 2 * hits[sizes > 0] / sizes[sizes > 0]
    scores = {
        "micro_f1": 2 * hits.sum() / max(1, sizes.sum()),
        "macro_f1": each.mean() if each.size else 0.0,
        "subset_accuracy": (guesses == golds).all(axis=1).mean(),
    }
    if all(p.probabilities is not None for p in predictions):
        shares = probabilities(labels, predictions)
        present = [c for c in range(len(labels)) if golds[:, c].any()]
        precise = [average_precision(shares[:, c], golds[:, c]) for c in present]
        scores["average_precision"] = fmean(precise) if precise else 0.0
    return {name: 100 * float(value) for name, value in scores.items()}


def indicators(labels: Sequence[str], several: Iterable[Sequence[str]]) -> NDArray[np.bool_]:
    """Return which labels each row has, `[N, C]`."""
    sets = map(set, several)
    return np.array([[label in chosen for label in labels] for chosen in sets], dtype=bool)


def probabilities(labels: Sequence[str], predictions: Sequence[Prediction]) -> NDArray[np.float64]:
    """Return the probability of each label, `[N, C]`."""
    shares = (dict((p.probabilities or {}).items()) for p in predictions)
    return np.array([[row[label] for label in labels] for row in shares])


def average_precision(shares: NDArray[np.float64], golds: NDArray[np.bool_]) -> float:
    """Return the mean of precision over recall, 0 to 1, of rows by falling probability."""
    _, hits, counts = _ranked(shares, golds)
    before = np.concatenate([[0], hits[:-1]])
    return float((hits / counts * (hits - before)).sum() / max(1, hits[-1]))


def best_threshold(shares: NDArray[np.float64], golds: NDArray[np.bool_]) -> float:
    """Return the threshold with the best F1, the highest of equals; 0.5 without any target.

    It lies in the middle between two probabilities.
    """
    if not golds.any():
        return 0.5
    values, hits, counts = _ranked(shares, golds)
    best = int(np.argmax(2 * hits / (counts + hits[-1])))
    below = values[best + 1] if best + 1 < len(values) else 0.0
    return float((values[best] + below) / 2)


def _ranked(
    shares: NDArray[np.float64], golds: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.int_], NDArray[np.int_]]:
    """Return the different probabilities, falling, and the hits and rows down to each."""
    order = np.argsort(-shares, kind="stable")
    values, hits = shares[order], golds[order].cumsum()
    ends = np.flatnonzero(np.append(np.diff(values) != 0, True))
    return values[ends], hits[ends], ends + 1
