"""How two runs answered the same examples: `predictions.jsonl`, by id."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ptrun.metrics.squad import normalise
from ptrun.run.find import Run

FILE = "predictions.jsonl"
_SHOWN = 3
Rows = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Answers:
    """Examples that both answered, and those that they answered differently.

    `numbers` says that targets are numbers: then `better` counts the nearer answers, else those
    that are right in one run alone.
    """

    both: int
    only: tuple[int, int]
    targets: int
    """How many of both have another target in B."""
    differently: int
    better: Counter[str] = field(default_factory=Counter)
    numbers: bool = False
    shown: tuple[str, ...] = ()

    def equal(self) -> bool:
        """Return whether the same examples were answered the same."""
        return not (self.differently or self.targets or any(self.only))


def compare(a: Run, b: Run) -> Answers | None:
    """Return how answers differ; None where a run has none.

    Raises:
        UserError: a line is damaged.
    """
    own, other = a.rows(FILE), b.rows(FILE)
    if own is None or other is None:
        return None
    ours, theirs = _by_id(own), _by_id(other)
    both = [name for name in ours if name in theirs]
    apart = [n for n in both if ours[n].get("prediction") != theirs[n].get("prediction")]
    numbers = any(isinstance(ours[name].get("target"), float) for name in both)
    judge = _nearer if numbers else _righter
    return Answers(
        both=len(both),
        only=(len(ours) - len(both), len(theirs) - len(both)),
        targets=sum(ours[name].get("target") != theirs[name].get("target") for name in both),
        differently=len(apart),
        better=Counter(judge(ours[name], theirs[name]) for name in apart),
        numbers=numbers,
        shown=tuple(_told(name, ours[name], theirs[name]) for name in apart[:_SHOWN]),
    )


def _by_id(rows: list[dict[str, Any]]) -> Rows:
    """Return rows by id; where two have one (several data sets), by how often it came before."""
    seen: Counter[str] = Counter()
    found: Rows = {}
    for row in rows:
        name = str(row.get("id"))
        found[f"{name} ({seen[name] + 1})" if seen[name] else name] = row
        seen[name] += 1
    return found


def right(row: Mapping[str, Any]) -> bool:
    """Return whether an answer is right: the target, or one of a question's answers.

    Texts are compared as SQuAD's script does; several spans are right when all are there.
    """
    answer, target = row.get("prediction"), row.get("target")
    spans = isinstance(target, list) and all(isinstance(one, Mapping) for one in target)
    if not spans or not isinstance(answer, str | list):
        return bool(answer == target)
    texts = [normalise(str(one.get("text"))) for one in target or ()]
    if isinstance(answer, str):
        return normalise(answer) in (texts or [""])
    return sorted(normalise(str(one)) for one in answer) == sorted(texts)


def _righter(own: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    return {(True, False): "A", (False, True): "B", (True, True): "both"}.get(
        (right(own), right(other)), "neither"
    )


def _nearer(own: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    ours, theirs = (abs(row["prediction"] - row["target"]) for row in (own, other))
    return "neither" if ours == theirs else "A" if ours < theirs else "B"


def _told(name: str, own: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    answers = [_short(row.get("prediction")) for row in (own, other)]
    return f"{name}: {answers[0]} → {answers[1]} (target {_short(own.get('target'))})"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."
