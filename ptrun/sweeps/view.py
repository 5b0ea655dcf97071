"""What a sweep shows while it runs: a table on a terminal, else a line for each start and end."""

import math
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ptrun.folder import result
from ptrun.folder.scan import progress
from ptrun.folder.summary import summary
from ptrun.sweeps.job import ENDS, Job
from ptrun.types import RunResult

_ROWS = 12  # running jobs that are listed


class View:
    """Prints results on standard output, and progress and errors on standard error.

    Args:
        total: the number of runs.
        quiet: print nothing.
        brief: a result is one line.
    """

    def __init__(self, total: int, *, quiet: bool = False, brief: bool = False):
        self.total, self.quiet, self.brief = total, quiet, brief
        self.began = time.monotonic()
        self.live: Any = None

    def __enter__(self) -> "View":
        """Start the table on a terminal."""
        if sys.stderr.isatty() and not self.quiet:
            from rich.console import Console
            from rich.live import Live

            self.live = Live(console=Console(stderr=True), transient=True, refresh_per_second=2)
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the table."""
        if self.live:
            self.live.stop()

    def started(self, group: Sequence[Job], slot: int) -> None:
        """Say that runs have started."""
        if self.live is None and not self.quiet:
            numbers = ", ".join(str(job.index + 1) for job in group)
            title = f": {group[0].title}" if len(group) == 1 and group[0].title else ""
            together = f" together, on device {slot}" if len(group) > 1 else ""
            print(f"run {numbers} of {self.total}{together}{title}", file=sys.stderr, flush=True)

    def ended(self, job: Job, done: RunResult | None) -> None:
        """Print the summary of a run, or its error."""
        if self.quiet:
            return
        if done is not None and self.brief:
            dev = done.metrics["dev"].get(done.metric, math.nan)
            print(f"{job.title}: dev {done.metric} {dev:.2f}", file=sys.stderr, flush=True)
        elif done is not None and job.folder is not None:
            print(summary(done, job.folder.parent), flush=True)
        elif job.stage != "finished":
            log = f"\n  log: {job.log}" if job.log else ""
            title = f"{job.title}: " if job.title else ""
            print(f"ptrun: {title}{job.text}{log}", file=sys.stderr, flush=True)

    def finish(self, job: Job) -> None:
        """Print how a run ended: its summary, or its error."""
        ends = job.stage == "finished" and job.folder is not None
        self.ended(job, result.read(job.folder) if ends and job.folder else None)

    def show(self, jobs: Sequence[Job]) -> None:
        """Update the table."""
        if self.live is not None:
            self.live.update(self._table(jobs))

    def _table(self, jobs: Sequence[Job]) -> Any:
        from rich.table import Table

        counts = Counter(job.stage for job in jobs)
        parts = [
            f"{counts[stage]} {stage}" for stage in (*ENDS, "running", "waiting") if counts[stage]
        ]
        table = Table(title=f"{', '.join(parts)}{self._time_left(jobs)}", box=None)
        for column in ("run", "title", "step", "best dev"):
            table.add_column(column)
        running = [job for job in jobs if job.stage == "running"]
        for job in running[:_ROWS]:
            step, dev = progress(job.folder) if job.folder else (0, "")
            table.add_row(str(job.index + 1), job.title, str(step or "loading"), dev)
        if len(running) > _ROWS:
            table.add_row("", f"and {len(running) - _ROWS} more", "", "")
        return table

    def _time_left(self, jobs: Sequence[Job]) -> str:
        done = sum(job.stage in ENDS and job.started > 0 for job in jobs)
        left = sum(job.stage in ("running", "waiting") for job in jobs)
        if not done or not left:
            return ""
        seconds = (time.monotonic() - self.began) / done * left
        return (
            f"; about {seconds / 60:.0f} min left"
            if seconds >= 90
            else f"; about {seconds:.0f} s left"
        )
