"""A sweep from the command line: its runs, what is done with them, and what is said at the end."""

import logging
import re
import sys
from collections import Counter
from collections.abc import Sequence
from textwrap import indent
from typing import TypeVar

from ptrun.config.compose import compose_run
from ptrun.config.overriding import expanded
from ptrun.config.schema import On, SweepConfig
from ptrun.errors import UserError
from ptrun.sweeps.job import ENDS, Job
from ptrun.sweeps.scheduler import Scheduler
from ptrun.sweeps.view import View
from ptrun.sweeps.workers import COMMAND, PLANNER
from ptrun.tracking.trackers import where

_LOG = logging.getLogger(__name__)
_WORDS = {
    "elsewhere": "in other processes or jobs (sweep.wait=true waits for them)",
    "left": "not started or stopped, because one failed",
}


def of_line(overrides: Sequence[str]) -> list[Job]:
    """Return the runs of `-m KEY=A,B`; one that is typed twice is done once."""
    every = [(tuple(typed), title) for typed, title in expanded(overrides)]
    runs = dict(every)
    if twice := len(every) - len(runs):
        _LOG.warning("%d of %d runs are typed twice, and done once", twice, len(every))
    return [Job(i, title, list(typed)) for i, (typed, title) in enumerate(runs.items())]


def options_of(overrides: Sequence[str]) -> SweepConfig:
    """Return `sweep.*` of a command line."""
    return compose_run([o for o in overrides if o.lstrip("+").startswith("sweep.")]).sweep


def do(jobs: Sequence[Job], options: SweepConfig, *, brief: bool = False) -> bool:
    """Do runs, or list them with `sweep.dry_run`; return whether all are finished, or allowed.

    A `brief` result is one line.
    """
    jobs = shard(jobs, options.shard)
    for place, job in enumerate(jobs):
        job.index = place
    if options.dry_run:
        return _list(jobs, options)
    if options.on is On.slurm:
        from ptrun.sweeps.slurm import Slurm

        done = Slurm(jobs, options).run()
    else:
        Scheduler(jobs, options, View(len(jobs), brief=brief)).run()
        done = all(job.stage == "finished" for job in jobs)
        ended = [job for job in jobs if job.stage == "finished" and job.folder and not brief]
        if ended:
            folders = [job.folder for job in ended if job.folder]
            sys.stderr.write(where(ended[0].composed.tracking, folders))
    counts = Counter(job.stage for job in jobs)
    told = [f"{counts[stage]} {_WORDS.get(stage, stage)}" for stage in ENDS if counts[stage]]
    total = f"{len(jobs)} run{'s' * (len(jobs) != 1)}"
    print(f"{total}: {', '.join(told)}", file=sys.stderr)
    return done


def _list(jobs: Sequence[Job], options: SweepConfig) -> bool:
    """Print each run with its state, and its group or why it is refused; return if none is."""
    command = PLANNER if options.on is On.slurm else COMMAND
    scheduler = Scheduler(jobs, options, View(len(jobs), quiet=True), command)
    scheduler.run()
    number = {job.index: n for n, group in enumerate(scheduler.listed, start=1) for job in group}
    for job in scheduler.jobs:
        todo = f"to do, group {number[job.index]}" if job.index in number else job.stage
        name = job.folder.name if job.folder else ""
        needs = [f"needs {needed.folder.name}" for needed in job.after if needed.folder]
        parts = (f"{job.index + 1:4d}", todo, job.title, name, *needs)
        print("  ".join(filter(None, parts)))
        if job.stage == "refused":
            print(indent(job.text, " " * 6))
    refused = sum(job.stage == "refused" for job in scheduler.jobs)
    groups = len(scheduler.listed)
    plural = "" if groups == 1 else "s"
    left = f"{len(number)} of {len(scheduler.jobs)} runs are left, in {groups} group{plural}"
    print(f"{left}; {refused} refused" if refused else left)
    return not refused


# `sweep.shard=I/N`: a part of a list of runs, for workers that number themselves.

T = TypeVar("T")


def shard(items: Sequence[T], part: str | None) -> Sequence[T]:
    """Return the I-th of N parts, counted from 1, of equal size up to one; None is all.

    Neighbours stay together, since they are those that share passes. The parts depend on the list
    alone, not on what is finished, so the workers need not know of each other.
    """
    if part is None:
        return items
    match = re.fullmatch(r"(\d+)/(\d+)", str(part))
    place, count = map(int, match.groups()) if match else (0, 0)
    if not 1 <= place <= count:
        raise UserError(f"sweep.shard={part}: type I/N with I from 1 to N, such as 1/4.")
    return items[(place - 1) * len(items) // count : place * len(items) // count]
