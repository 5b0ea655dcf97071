"""trackio: a database on this machine."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ptrun.tracking.trackers import final
from ptrun.types import RunResult


class _Trackio:
    """A trackio run with the id of the ptrun run."""

    def __init__(self, folder: Path, run_id: str, config: Mapping[str, Any], *, project: str):
        self.keys = {"project": project, "name": run_id, "group": folder.parent.name}
        self.config = dict(config)

    def open(self) -> None:
        import trackio

        quiet = {"embed": False, "auto_log_gpu": False, "auto_log_cpu": False}
        self.run = trackio.init(**self.keys, config=self.config, resume="allow", **quiet)

    def log(self, numbers: Mapping[str, float], step: int | None) -> None:
        self.run.log(dict(numbers), step=step)

    def finish(self, result: RunResult | None) -> None:
        if result is not None:
            self.run.log(final(result))
        self.run.finish()


TRACKER = _Trackio
