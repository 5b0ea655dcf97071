"""One run of a sweep, as the scheduler sees it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from ptrun.config.compose import Composed, compose_run
from ptrun.hardware import processes

Stage = Literal["waiting", "running", "elsewhere", "finished", "failed", "refused", "left"]
"""`elsewhere`: another process does it. `left`: not started because of a failure."""
ENDS: tuple[Stage, ...] = ("finished", "failed", "refused", "elsewhere", "left")


@dataclass
class Job:
    """A run with its place in the sweep, its title, and how far it is.

    Args:
        index: counted from 0.
        title: what differs between the runs of the sweep.
        overrides: what was typed for it.
        again: whether it starts anew although it has failed.
        lost: how often its process died.
        text: the message of its error.
        log: what it printed.
        needs: memory, processes and time of its job on a cluster.
        after: the runs that are done before it.
    """

    index: int
    title: str
    overrides: Sequence[str]
    stage: Stage = "waiting"
    folder: Path | None = None
    shape: str | None = None
    most: int = 1
    again: bool = False
    lost: int = 0
    text: str = ""
    log: Path | None = None
    started: float = field(default=0.0, repr=False)
    needs: dict[str, Any] = field(default_factory=dict, repr=False)
    after: list["Job"] = field(default_factory=list, repr=False)

    @classmethod
    def of_configuration(cls, index: int, title: str, text: str) -> "Job":
        """Return the job of a configuration as text."""
        job = cls(index, title, ())
        job.__dict__ |= {"composed": processes.read_text(text), "configuration": text}
        return job

    @cached_property
    def composed(self) -> Composed:
        """The configuration, composed when it is needed."""
        return compose_run(self.overrides).in_sweep()

    @cached_property
    def configuration(self) -> str:
        """The configuration as text, for workers."""
        return processes.text_of(self.composed)

    def end(self, stage: Stage, text: str = "") -> None:
        """Note how the run ended."""
        self.stage, self.text = stage, text
