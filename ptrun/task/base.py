"""The interface of a task: its examples, and the score of predictions. No tokenizer, no model."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from ptrun.hub.repository import Repository
from ptrun.task.source import Row
from ptrun.types import Example, Prediction

Part = Literal["train", "dev", "test"]
PARTS: tuple[Part, ...] = ("train", "dev", "test")
Scores = dict[str, float]


@dataclass
class Account:
    """The rows of a file: how many were read, and how many were left out, by reason."""

    read: int = 0
    left_out: Counter[str] = field(default_factory=Counter)

    def leave_out(self, reason: str) -> None:
        """Count a row that becomes no example."""
        self.left_out[reason] += 1

    def __str__(self) -> str:
        reasons = "; ".join(f"{count:,} left out: {why}" for why, count in self.left_out.items())
        return f"{self.read:,} rows{', ' if reasons else ''}{reasons}"

    def record(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {"read": self.read, "left_out": dict(self.left_out)}


class Task(Protocol):
    """Data and its scoring; a head or verbalizer tells `labels` apart, in this order."""

    kind: str
    answer: str
    """What a prediction is: label, number, option, entity, tags, span, spans, word or several."""
    fills_gap: bool
    """Whether words that fill a gap of the text decide the label (WSC)."""
    stratified: bool
    """Whether parts of train are drawn class by class."""
    name: str
    version: int
    fields: Sequence[str]
    """The text fields of an example, in reading order."""
    labels: Sequence[str]
    metric: str
    """The metric that selects, one of those `score` returns."""
    pvps: Mapping[str, Any]
    """Pattern-verbalizer pairs by name, as the task's YAML file has them."""
    pvps_from: str | None
    """Where the user wrote `pvps`, for errors. None: they belong to a data set, and may use fields
    that only some of its files have."""
    descriptions: Mapping[str, str]
    """A description of each label, as the task's YAML file has it; empty if there is none."""
    max_tokens: int | None
    """Longest input in tokens; None means the backbone's limit."""

    accounts: Mapping[str, Account]
    """What became of the rows of each part that was loaded; a data set may keep none."""

    @property
    def repositories(self) -> Sequence[Repository]:
        """The hub repositories that the examples come from."""

    reads: Sequence[str]
    """The fields of a file that `unlabelled` needs."""

    def unlabelled(self, name: str, row: Row) -> Example:
        """Return the example of a row without a label; its target is a placeholder."""

    def has(self, part: Part, *, paper: bool = False) -> bool:
        """Return whether the data set publishes this part with labels."""

    def load(self, part: Part, *, paper: bool = False) -> Sequence[Example]:
        """Return the examples of a part, in file order; `paper` selects the authors' splits."""

    def score(self, predictions: Sequence[Prediction], examples: Sequence[Example]) -> Scores:
        """Return every metric, 0-100, of predictions paired with examples by position."""

    def digest(self) -> str:
        """Return what identifies the data: contents of local files, or hub id and revision."""
