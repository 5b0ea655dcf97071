"""What a sweep shows while it runs, and what `ptrun status` prints."""

import json
import math
import os
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from ptrun.errors import UserError, folded, visible
from ptrun.folder import result
from ptrun.folder.result import summary
from ptrun.folder.scan import KINDS, Known, Progress, RunState, duration, progress
from ptrun.sweeps import queue
from ptrun.sweeps.job import ENDS, Job

# What a sweep shows while it runs: a table on a terminal, else a line for each start and end.

_ROWS = 12  # running jobs that are listed


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class View:
    """Prints results on standard output, and progress and errors on standard error.

    A `quiet` one prints nothing; a `brief` result is one line.
    """

    def __init__(self, total: int, *, quiet: bool = False, brief: bool = False):
        self.total, self.quiet, self.brief = total, quiet, brief
        self.began = time.monotonic()
        self.live: Any = None
        self._told = False

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
            _tell(f"run {numbers} of {self.total}{together}{title}")

    def unkept(self, size: int) -> None:
        """Say once that tuned models of `size` bytes are not kept, and what they would take."""
        if not size or self.quiet or self._told:
            return
        self._told, gigabytes = True, size / 10**9
        _tell(
            f"tuned models are not kept, so ptrun predict and export need keep=weights: "
            f"{gigabytes:.2g} GB a run, {gigabytes * self.total:.2g} GB for {self.total} runs",
        )

    def finish(self, job: Job) -> None:
        """Print how a run ended: its summary, or its error."""
        if self.quiet:
            return
        done = result.read(job.folder) if job.stage == "finished" and job.folder else None
        if done is not None and self.brief:
            dev = done.metrics["dev"].get(done.metric, math.nan)
            _tell(f"{job.title}: dev {done.metric} {dev:.2f}")
        elif done is not None and job.folder is not None:
            print(folded(summary(done, job.folder.parent)), flush=True)
        elif job.stage != "finished":
            log = f"\n  log: {job.log}" if job.log else ""
            told = not job.title or job.text.startswith(f"{job.title}:")
            title = "" if told else f"{job.title}: "
            _tell(f"ptrun: {title}{job.text}{log}")

    def show(self, jobs: Sequence[Job]) -> None:
        """Update the table."""
        if self.live is None:
            return
        counts = Counter(job.stage for job in jobs)
        parts = [
            f"{counts[stage]} {stage}" for stage in (*ENDS, "running", "waiting") if counts[stage]
        ]
        title, done = ", ".join(parts), sum(j.stage in ENDS and j.started > 0 for j in jobs)
        left = counts["running"] + counts["waiting"]
        if done and left:
            seconds = (time.monotonic() - self.began) / done * left
            title += f"; about {duration(seconds)} left"
        table = Table(title=title, box=None)
        for column in ("run", "title", "step", "dev"):
            table.add_column(column)
        running = [job for job in jobs if job.stage == "running"]
        for job in running[:_ROWS]:
            so_far = progress(job.folder) if job.folder else Progress()
            table.add_row(str(job.index + 1), job.title, str(so_far), so_far.dev)
        if len(running) > _ROWS:
            table.add_row("", f"and {len(running) - _ROWS} more", "", "")
        self.live.update(table)


# What `ptrun status` prints.

_LISTED = 40  # unfinished runs that are listed


def with_queue(root: Path, runs: Sequence[Known]) -> list[Known]:
    """Return runs with those that sweeps, and jobs of a cluster, have still to do below `root`."""
    top = Path(os.path.abspath(root))
    outputs = next((f for f in (top, *top.parents) if (f / queue.FOLDER).is_dir()), top)
    try:
        states = dict.fromkeys(queue.of_sweeps(outputs), RunState("new"))
        queued = queue.queued(outputs).items()
    except UserError as error:
        print(f"runs that have not begun are not shown: {error}", file=sys.stderr)
        return list(runs)
    states |= {folder: RunState("queued", f"in {task}") for folder, task in queued}
    listed: list[Known] = []
    for run in runs:
        state = states.pop(top / run.folder.relative_to(root), run.state)
        goes_on = state.kind == "queued" and run.state.kind in ("new", "interrupted", "failed")
        listed.append(replace(run, state=state) if goes_on else run)
    below = {root / f.relative_to(top): s for f, s in states.items() if f.is_relative_to(top)}
    return [*listed, *(Known(folder, state) for folder, state in below.items())]


def shown(root: Path, runs: Sequence[Known], expected: Mapping[str, int]) -> Group:
    """Return a table of states by folder, and a line for each run that is not finished.

    `expected` is the number of runs that each folder will have, by its path below `root`; where it
    is empty, only the runs that have started are known.
    """
    by_folder: dict[str, Counter[str]] = {name: Counter() for name in expected}
    for run in runs:
        name = os.path.relpath(run.folder.parent, root) if run.folder != root else "."
        by_folder.setdefault(name, Counter())[run.state.kind] += 1
    for name, counts in by_folder.items():
        counts["new"] += max(0, expected.get(name, 0) - counts.total())
    kinds = [kind for kind in KINDS if any(counts[kind] for counts in by_folder.values())]
    table = Table(box=None, pad_edge=False)
    table.add_column("runs", overflow="fold")
    for kind in kinds:
        table.add_column(kind, justify="right", no_wrap=True)
    for name, counts in by_folder.items():
        table.add_row(escape(visible(name)), *(str(counts[kind] or "") for kind in kinds))
    left = [run for run in runs if run.state.kind != "finished"]
    lines: list[RenderableType] = [_line(run) for run in left[:_LISTED]]
    if len(left) > _LISTED:
        lines.append(f"and {len(left) - _LISTED} more that are not finished")
    done, total = len(runs) - len(left), max(len(runs), sum(expected.values()))
    return Group(table, *lines, f"{done:,} of {total:,} runs are finished")


def _line(run: Known) -> str:
    parts = [run.folder.name, str(run.state).splitlines()[0]]
    so_far = run.progress
    parts += [str(so_far)] if so_far.step and run.state.kind == "running" else []
    parts += [f"dev {so_far.dev}"] if so_far.dev else []
    parts += [f"needs {needed}" for needed in run.needs]
    return escape(visible("  ".join(parts)))


def as_json(runs: Sequence[Known]) -> str:
    """Return the runs as a JSON list."""
    return json.dumps([run.plain() for run in runs], indent=1)
