"""One run of a group on its way from plan to result."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ptrun.errors import RunFailed, UserError
from ptrun.files import below
from ptrun.method.base import Method
from ptrun.protocol.overlap import Overlaps
from ptrun.readout.base import Features
from ptrun.runs.parts import Part, Trained
from ptrun.runs.plan import Plan
from ptrun.runs.shared_store import SharedStore
from ptrun.runs.token_cache import TOKENS, encoded
from ptrun.types import Example, RunResult, Split

Ended = RunResult | UserError | RunFailed


@dataclass
class Work:
    """A run; each stage of the recipe adds what the next one reads."""

    planned: Plan
    split: Split = field(init=False)
    overlaps: Overlaps = field(init=False)
    parts: list[Part] = field(init=False)
    methods: list[Method] = field(init=False)
    trained: list[Trained] = field(init=False)
    store: SharedStore = field(init=False)
    warnings: list[str] = field(default_factory=list)
    ended: Ended | None = None

    @property
    def tuned(self) -> bool:
        """Whether the run tunes the backbone."""
        return self.methods[0].tunes_backbone

    @property
    def failed(self) -> str | None:
        """Why a member failed."""
        return next((one.member.failed for one in self.trained if one.member.failed), None)

    def encoded(self, method: Method, examples: Sequence[Example]) -> Sequence[Features]:
        """Return examples as a method reads them; the token cache is shared between runs."""
        return encoded(method, examples, below(self.planned.outputs, TOKENS))
