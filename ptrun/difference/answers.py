"""The predictions of two runs for the same examples: `predictions.jsonl`, by id."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from ptrun.folder.digest import is_number
from ptrun.folder.find import Run
from ptrun.metrics.squad import normalise

FILE = "predictions.jsonl"
_SHOWN = 3


@dataclass(frozen=True)
class Predictions:
    """The number of common examples and of different predictions.

    Args:
        both: examples in both runs.
        only: examples in A only and in B only.
        targets: common examples with another target in B.
        differing: common examples with different predictions.
        better: differing predictions by the run that is correct; for numbers, nearer the target.
        numbers: whether targets are numbers.
        shown: some differing predictions as text.
    """

    both: int
    only: tuple[int, int]
    targets: int
    differing: int
    better: Counter[str] = field(default_factory=Counter)
    numbers: bool = False
    shown: tuple[str, ...] = ()

    def equal(self) -> bool:
        """Return whether examples, targets and predictions are equal."""
        return not (self.differing or self.targets or any(self.only))


def compare(a: Run, b: Run) -> Predictions | None:
    """Return how the predictions differ; None if a run has none.

    Raises:
        UserError: a line is damaged.
    """
    files = a.rows(FILE), b.rows(FILE)
    if files[0] is None or files[1] is None:
        return None
    own, other = _by_id(files[0]), _by_id(files[1])
    both = {name: (row, other[name]) for name, row in own.items() if name in other}
    differing = {
        name: (x, y) for name, (x, y) in both.items() if x.get("prediction") != y.get("prediction")
    }
    numbers = any(isinstance(row.get("target"), float) for row, _ in both.values())
    better = _nearer if numbers else _correct
    return Predictions(
        both=len(both),
        only=(len(own) - len(both), len(other) - len(both)),
        targets=sum(x.get("target") != y.get("target") for x, y in both.values()),
        differing=len(differing),
        better=Counter(better(x, y) for x, y in differing.values()),
        numbers=numbers,
        shown=tuple(_text(name, *pair) for name, pair in islice(differing.items(), _SHOWN)),
    )


def _by_id(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return rows by id; several data sets may repeat an id, which is then numbered."""
    seen: Counter[str] = Counter()
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        name = str(row.get("id"))
        found[f"{name} ({seen[name] + 1})" if seen[name] else name] = row
        seen[name] += 1
    return found


def right(row: Mapping[str, Any]) -> bool:
    """Return whether a prediction is the target, or one of the reference texts of a question.

    Texts are normalised as in SQuAD's script. A list of spans must be complete.
    """
    prediction, target = row.get("prediction"), row.get("target")
    spans = isinstance(target, list) and all(isinstance(one, Mapping) for one in target)
    if not spans or not isinstance(prediction, str | list):
        return bool(prediction == target)
    texts = [normalise(str(one.get("text"))) for one in target or ()]
    if isinstance(prediction, str):
        return normalise(prediction) in (texts or [""])
    return sorted(normalise(str(one)) for one in prediction) == sorted(texts)


def _correct(own: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    if right(own):
        return "both" if right(other) else "A"
    return "B" if right(other) else "neither"


def _nearer(own: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    if not all(is_number(row[key]) for row in (own, other) for key in ("prediction", "target")):
        return "neither"
    a, b = (abs(row["prediction"] - row["target"]) for row in (own, other))
    return "neither" if a == b else "A" if a < b else "B"


def _text(name: str, own: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    texts = [_short(value) for value in (own.get("prediction"), other.get("prediction"))]
    return f"{name}: {texts[0]} → {texts[1]} (target {_short(own.get('target'))})"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."
