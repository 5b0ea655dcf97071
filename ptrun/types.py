"""Frozen records that packages share. The command line imports this file, so it has no torch."""

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol

__version__ = "0.1.0"


class Labels(list[str]):
    """The target of a row with several labels; its class in samples is the rarest of them."""


@dataclass(frozen=True)
class Example:
    """One labelled item of a task: named fields for patterns, and a target.

    Examples with the same `group` are scored or trained together: the answers to a question, or
    the facts of a relation.
    """

    id: str
    fields: Mapping[str, Any]
    target: Any
    group: str | None = None


@dataclass(frozen=True)
class Prediction:
    """The prediction of a method for the example with the same id.

    `value` has the type of the target. `also` has predictions by other rules, which are scored
    separately. `probability` is that of `value`, and `probabilities` are those of all labels, or of
    all options by index, if the read-out gives them. `figures` are numbers that the score of a text
    needs: `loss` summed over its `tokens`, and `unfinished`, 1 if it has no end. Their rounding
    depends on the batch, so comparisons ignore them. `reference` is the target as a chat template
    writes it, if that is not the target's text.
    """

    id: str
    value: Any
    also: Mapping[str, Any] = field(default_factory=dict)
    probability: float | None = field(default=None, compare=False)
    probabilities: Mapping[Any, float] | None = field(default=None, compare=False)
    figures: Mapping[str, float] = field(default_factory=dict, compare=False)
    reference: str | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Split:
    """The examples of one run: train on `train`, select on `dev`, report on `test`."""

    train: Sequence[Example]
    dev: Sequence[Example]
    test: Sequence[Example]
    origin: Mapping[str, str]
    """The source of each part in words: `{"dev": "10 % of train", ...}`."""


SIGNS = (
    "the loss hardly moved",
    "the loss rose",
    "the last dev answers are all the same",
    "dev accuracy is near chance",
)
"""How the warnings begin that say that a run hardly learned."""


@dataclass(frozen=True)
class RunResult:
    """The content of `result.json`. Numbers are not rounded; reports round them."""

    run_id: str
    group: str
    """A hash of the configuration without the model seed: the seeds of one cell share it."""
    status: str
    """`finished` or `failed`."""
    names: Mapping[str, str]
    """The chosen option of each group."""
    seed: int
    """The model seed."""
    metric: str
    """The metric that selects and is reported first."""
    metrics: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """`{"dev": {...}, "test": {...}}`, every metric in 0-100 unless its name says otherwise."""
    by_label: Mapping[str, Any] = field(default_factory=dict)
    """On test, `scores` of each label or type of entity: `{label: {"precision", "recall", "f1",
    "count"}}`; of labels also the `confusion`, `{target: {prediction: count}}`. Empty for other
    answers."""
    learned_parameters: Mapping[str, int] = field(default_factory=dict)
    """Trained numbers of `prompt`, `head` and `backbone`, and their `total`."""
    manifest: Mapping[str, Any] = field(default_factory=dict)
    """What the result was made with."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """The whole configuration."""
    reason: str | None = None
    """Why the run failed."""
    schema: int = 1
    """The version of this record."""
    files: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Digests of the other files of the folder by name, added when the result is written."""

    @property
    def rate(self) -> float | None:
        """The learning rate; None if it was not recorded."""
        rate: float | None = self.config.get("train", {}).get("lr")
        return rate

    @property
    def signs(self) -> list[str]:
        """Those of `SIGNS` that the run shows."""
        warnings = self.manifest.get("warnings", ())
        return [sign for sign in SIGNS if any(str(text).startswith(sign) for text in warnings)]


class Journal(Protocol):
    """What a member writes to during training: a run folder, or nothing."""

    def log(self, row: Mapping[str, Any]) -> None:
        """Append one row of metrics."""

    def draft(self, tensors: Mapping[str, Any], meta: Mapping[str, Any]) -> Callable[[], object]:
        """Write a state beside the saved one; return what makes it the saved one, atomically."""

    def restore(self) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Return the last saved state, or None."""


class Tracker(Protocol):
    """A receiver of metrics besides the run folder."""

    def log(self, row: Mapping[str, Any]) -> None:
        """Take one row of `metrics.jsonl`."""

    def finish(self, result: RunResult | None) -> None:
        """Take the result, or None if the run was interrupted; called once."""


class Classes(MutableMapping[str, Any]):
    """Classes by name; one given as a dotted path is imported when it is read."""

    def __init__(self, **classes: Any):
        self._classes = classes

    def __getitem__(self, name: str) -> Any:
        """Return a class."""
        given = self._classes[name]
        if isinstance(given, str):
            module, _, attribute = given.rpartition(".")
            given = self._classes[name] = getattr(import_module(module), attribute)
        return given

    def __setitem__(self, name: str, given: Any) -> None:
        """Add a class, or replace one."""
        self._classes[name] = given

    def __delitem__(self, name: str) -> None:
        """Remove a class."""
        del self._classes[name]

    def __iter__(self) -> Iterator[str]:
        """Yield the names."""
        return iter(self._classes)

    def __len__(self) -> int:
        """Return the number of classes."""
        return len(self._classes)
