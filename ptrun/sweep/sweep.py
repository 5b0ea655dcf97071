"""A sweep from the command line: its runs, what is done with them, and what is said at the end."""

import sys
from collections import Counter
from collections.abc import Sequence

from ptrun.config.expand import expanded
from ptrun.config.explain import composed
from ptrun.config.schema import SweepConfig
from ptrun.sweep.job import ENDS, Job
from ptrun.sweep.scheduler import Scheduler
from ptrun.sweep.view import View

_WORDS = {
    "elsewhere": "run by another process (sweep.wait=true waits for it)",
    "left": "not started or stopped, because one failed",
}


def of_line(overrides: Sequence[str]) -> list[Job]:
    """Return the runs of `-m KEY=A,B`.

    Raises:
        UserError: an override is invalid.
    """
    return [Job(i, title, own) for i, (own, title) in enumerate(expanded(overrides))]


def options_of(overrides: Sequence[str]) -> SweepConfig:
    """Return `sweep.*` of a command line.

    Raises:
        UserError: a key or value is wrong.
    """
    return composed([o for o in overrides if o.lstrip("+").startswith("sweep.")]).sweep


def do(jobs: Sequence[Job], options: SweepConfig) -> bool:
    """Do runs, or list them with `sweep.dry_run`; return whether all are finished.

    Raises:
        UserError: an option is invalid.
    """
    scheduler = Scheduler(jobs, options, View(len(jobs), quiet=options.dry_run))
    scheduler.run()
    if options.dry_run:
        _list(scheduler)
        return True
    counts = Counter(job.stage for job in jobs)
    told = [f"{counts[stage]} {_WORDS.get(stage, stage)}" for stage in ENDS if counts[stage]]
    total = f"{len(jobs)} run{'s' * (len(jobs) != 1)}"
    print(f"{total}: {', '.join(told)}", file=sys.stderr)
    return counts["finished"] == len(jobs)


def _list(scheduler: Scheduler) -> None:
    """Print each run with its state, and the group in which it would be done."""
    number = {job.index: n for n, own in enumerate(scheduler.listed, start=1) for job in own}
    for job in scheduler.jobs:
        todo = f"to do, group {number[job.index]}" if job.index in number else job.stage
        name = job.folder.name if job.folder else ""
        print("  ".join(part for part in (f"{job.index + 1:4d}", todo, job.title, name) if part))
    print(
        f"{len(number)} of {len(scheduler.jobs)} runs are left, in {len(scheduler.listed)} groups"
    )
