"""What a task is: examples, and the score of predictions on them. No tokenizer, no model."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

from ptrun.task.source import Row
from ptrun.types import Example, Prediction

Part = Literal["train", "dev", "test"]
PARTS: tuple[Part, ...] = ("train", "dev", "test")


class Task(Protocol):
    """Data and its scoring; `labels` are what a head or verbalizer must tell apart, in order."""

    kind: str
    name: str
    version: int
    fields: Sequence[str]
    """The fields of an example that are text, in reading order."""
    labels: Sequence[str]
    metric: str
    """The metric that selects, one of those `score` returns."""
    pvps: Mapping[str, Any]
    """Patterns with their verbalizers, by name, as the task's file has them."""
    pvps_from: str | None
    """Where the user wrote `pvps`, as errors name it; None: a data set's, perhaps about fields that
    only some of its files have."""
    descriptions: Mapping[str, str]
    """What is said of a text of each label, as the task's file has it; empty where it has none."""
    max_tokens: int | None
    """Longest input in tokens; null means what the backbone holds."""

    reads: Sequence[str]
    """The fields that a row must have to be asked about, as files have them; the answer is not one.
    """

    def unlabelled(self, name: str, row: Row) -> Example:
        """Return the example of a row whose answer is not known; its target has the right form."""

    def has(self, part: Part, *, paper: bool = False) -> bool:
        """Return whether the data set publishes this part with labels."""

    def load(self, part: Part, *, paper: bool = False) -> list[Example]:
        """Return the examples of a part, in file order; `paper` for the authors' own splits."""

    def score(
        self, predictions: Sequence[Prediction], examples: Sequence[Example]
    ) -> dict[str, float]:
        """Return every metric, 0-100, of predictions paired with examples by position."""

    def digest(self) -> str:
        """Return what identifies the data: contents of local files, or hub id and revision."""
