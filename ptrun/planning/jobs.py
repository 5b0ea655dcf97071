"""The jobs of a sweep and the state of their run folders."""

from collections.abc import Callable
from dataclasses import dataclass

from ptrun.config.compose import Composed
from ptrun.errors import UserError
from ptrun.folder.state import state_of
from ptrun.planning.layout import Layout
from ptrun.runs.plan import Plan, plan


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
        state = str(state_of(planned.folder))
    except UserError as error:
        return Job(title, overrides, own, None, f"refused: {error}")
    again = ", to be run again" if own.rerun and state != "new" else ""
    return Job(title, overrides, own, planned, state + again)
