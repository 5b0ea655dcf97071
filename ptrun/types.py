"""Frozen records that cross package borders. No torch here: the command line imports this."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True)
class Example:
    """One labelled item of a task: named fields a pattern may use, and the target of its kind.

    `group` is what it is scored or trained with: a question's answers, a relation's facts.
    """

    id: str
    fields: Mapping[str, Any]
    target: Any
    group: str | None = None


@dataclass(frozen=True)
class Prediction:
    """What a method answers for the example of the same id; `value` has the target's form.

    `also` has further answers by name, by other rules than the one that counts: scored beside it.
    `probability` is that of the value among all there could be, where the read-out has one; it
    rounds with the company it is computed in, so it does not count in comparisons.
    """

    id: str
    value: Any
    also: Mapping[str, Any] = field(default_factory=dict)
    probability: float | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Split:
    """The examples of one run: learn from `train`, select on `dev`, report on `test`."""

    train: Sequence[Example]
    dev: Sequence[Example]
    test: Sequence[Example]
    origin: Mapping[str, str]
    """Where each part came from, in words: `{"dev": "10 % of train", ...}`."""


@dataclass(frozen=True)
class RunResult:
    """Everything `result.json` holds; numbers are raw, rounding belongs to the report."""

    run_id: str
    group: str
    """Hash of all that affects numbers except the model seed: equal for the seeds of one cell."""
    status: str
    """`finished` or `failed`."""
    names: Mapping[str, str]
    seed: int
    metric: str
    metrics: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """`{"dev": {...}, "test": {...}}`, every metric in 0-100 unless its name says otherwise."""
    learned_parameters: Mapping[str, int] = field(default_factory=dict)
    manifest: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    reason: str | None = None
    schema: int = 1


class Journal(Protocol):
    """Where a member of a population writes as it trains; a run folder, or nothing."""

    def log(self, row: Mapping[str, Any]) -> None:
        """Append one row of figures."""

    def save(self, tensors: Mapping[str, Any], meta: Mapping[str, Any]) -> None:
        """Keep what is needed to go on from here, atomically."""

    def restore(self) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Return what was saved last, or None."""


class Tracker(Protocol):
    """Where live figures go besides the run folder."""

    def log(self, row: Mapping[str, Any]) -> None:
        """Take one row of `metrics.jsonl`."""

    def finish(self, result: RunResult) -> None:
        """Take the result; called once."""
