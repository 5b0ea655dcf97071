"""The record of a run, from plan to result."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ptrun.config.compose import Composed
from ptrun.errors import RunFailed, UserError
from ptrun.files import below
from ptrun.method.base import Method
from ptrun.protocol.overlap import Overlaps
from ptrun.readout.base import Features
from ptrun.runs.parts import Part
from ptrun.runs.plan import Plan
from ptrun.runs.shared_store import SharedStore
from ptrun.runs.token_cache import TOKENS, encoded
from ptrun.types import Example, RunResult, Split

Ended = RunResult | UserError | RunFailed


@dataclass
class Execution:
    """One run from plan to result; each stage adds what the next one reads.

    Args:
        planned: its plan.
        composed: the configuration that it was planned from; None in a rank.
        files: the states of the files that its plan read.
    """

    planned: Plan
    composed: Composed | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    split: Split = field(init=False)
    overlaps: Overlaps = field(init=False)
    parts: list[Part] = field(init=False)
    store: SharedStore = field(init=False)
    warnings: list[str] = field(init=False, default_factory=list)
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

    def encoded(self, method: Method, examples: Sequence[Example]) -> Sequence[Features]:
        """Return examples as a method reads them; the token cache is shared between runs."""
        return encoded(method, examples, below(self.planned.outputs, TOKENS))
