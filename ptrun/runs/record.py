"""The record of a run, from plan to result."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ptrun.errors import RunFailed, UserError
from ptrun.method.base import Method
from ptrun.runs.examples import Part
from ptrun.runs.plan import Plan
from ptrun.runs.shared_store import SharedStore
from ptrun.task.protocol import Overlaps
from ptrun.types import RunResult, Split

Ended = RunResult | UserError | RunFailed


@dataclass
class Execution:
    """One run from plan to result; each stage adds what the next one reads.

    Args:
        planned: its plan.
        added: the tokens that the method adds to a request.
        losses: of the texts of `forgetting`, in nats a token: `base` and `loss`, with the method.
        shared: what runs of one group compute once: rows, and their tokens.
    """

    planned: Plan
    shared: dict[Any, Any]
    split: Split = field(init=False)
    overlaps: Overlaps = field(init=False)
    parts: list[Part] = field(init=False)
    store: SharedStore = field(init=False)
    started_from: dict[str, Any] | None = field(init=False, default=None)
    warnings: list[str] = field(init=False, default_factory=list)
    metrics: dict[str, dict[str, float]] = field(init=False, default_factory=dict)
    by_label: Mapping[str, Any] = field(init=False, default_factory=dict)
    added: float | None = field(init=False, default=None)
    losses: dict[str, float] = field(init=False, default_factory=dict)
    ended: Ended | None = field(init=False, default=None)

    @property
    def methods(self) -> list[Method]:
        """The method of each part."""
        return [part.method for part in self.parts]

    @property
    def tuned(self) -> bool:
        """Whether the run tunes the backbone."""
        return self.parts[0].method.tunes_backbone

    @property
    def failed(self) -> str | None:
        """Why a member failed."""
        return next((part.member.failed for part in self.parts if part.member.failed), None)
