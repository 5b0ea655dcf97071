"""The jobs of a sweep and the state of their run folders."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from safetensors import SafetensorError, safe_open

from ptrun.config.compose import Composed, loosen
from ptrun.config.explain import explain
from ptrun.errors import UserError
from ptrun.planning.layout import Layout
from ptrun.run import result
from ptrun.run.plan import Plan, plan
from ptrun.run.store import state_file


@dataclass(frozen=True)
class Job:
    """One run with its title in the sweep and its state.

    `planned` is None if the run is refused; `state` says why.
    """

    title: str
    overrides: tuple[str, ...]
    composed: Composed
    planned: Plan | None
    state: str

    @property
    def done(self) -> bool:
        """Whether the run has finished."""
        return self.state.startswith("finished")


def expanded(overrides: Sequence[str]) -> list[tuple[tuple[str, ...], str]]:
    """Return the overrides and title of each job; the first key varies slowest.

    Raises:
        UserError: an override is invalid.
    """
    try:
        read = OverridesParser.create().parse_overrides([loosen(o) for o in overrides])
        choices = [
            [f"{given.partition('=')[0]}={value}" for value in own.sweep_string_iterator()]
            if own.is_sweep_override()
            else [given]
            for own, given in zip(read, overrides, strict=True)
        ]
    except HydraException as error:
        raise explain(error, overrides) from error
    varied = [len(own) > 1 for own in choices]
    return [
        (job, " ".join(o.lstrip("+") for o, varies in zip(job, varied, strict=True) if varies))
        for job in product(*choices)
    ]


class Elsewhere:
    """A placeholder for an engine that this machine may not have."""

    def __init__(self, layout: Layout):
        self.precision, self.device = layout.precision, layout.device


def planned_on(own: Composed, layout: Layout) -> Plan:
    """Return the plan of a run without its engine.

    Raises:
        UserError: as `plan`.
    """
    return plan(own, engine=lambda _backbone: Elsewhere(layout))


def job(title: str, overrides: tuple[str, ...], own: Composed, layout: Callable[[], Layout]) -> Job:
    """Return a job and its state."""
    try:
        planned = planned_on(own, layout())
        state = state_of(planned.folder)
    except UserError as error:
        return Job(title, overrides, own, None, f"refused: {error}")
    again = ", to be run again" if own.rerun and state != "new" else ""
    return Job(title, overrides, own, planned, state + again)


def state_of(folder: Path) -> str:
    """Return the state of a run folder: finished, failed, interrupted at a step, or new."""
    try:
        done = result.read(folder)
    except UserError as error:
        return f"damaged: {error}"
    if done is not None:
        return "finished" if done.status == "finished" else f"failed: {done.reason}"
    steps = [_step(file) for file in sorted(folder.glob(f"*{state_file(folder).name}"))]
    if steps:
        return f"interrupted at step {sum(steps)}"
    return "interrupted before its first save" if folder.is_dir() else "new"


def _step(file: Path) -> int:
    try:
        with safe_open(file, "pt") as opened:
            return int(json.loads(opened.metadata()["state"])["step"])
    except (SafetensorError, OSError, KeyError, TypeError):
        return 0
