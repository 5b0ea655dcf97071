"""trackio: a database on this machine."""

from collections.abc import Mapping
from typing import Any

from ptrun.tracking.trackers import OneTracker, Tracked, final
from ptrun.types import RunResult

OPTIONS = ("project",)


def opened(run: Tracked, project: str) -> OneTracker:
    """Return a trackio run with the id of the ptrun run."""
    import trackio

    opened_run = trackio.init(
        project=project,
        name=run.run_id,
        group=run.group,
        config=dict(run.config),
        resume="allow",
        embed=False,
        auto_log_gpu=False,
        auto_log_cpu=False,
    )
    return _Trackio(opened_run)


class _Trackio:
    def __init__(self, run: Any):
        self.run = run

    def log(self, numbers: Mapping[str, float], step: int | None) -> None:
        self.run.log(dict(numbers), step=step)

    def finish(self, result: RunResult | None) -> None:
        if result is not None:
            self.run.log(final(result))
        self.run.finish()
