"""All runs of a table (`ptrun.papers.command`), done as a sweep (`ptrun.sweeps`).

Cells whose backbone or data are on no hub and were not imported are left out.
"""

import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from ptrun.config.compose import Composed, compose_run
from ptrun.errors import UserError, folded
from ptrun.folder.scan import state_of
from ptrun.papers.experiment import Experiment, Options, TableJob, jobs, load, parse
from ptrun.sweeps import job as sweep_job
from ptrun.sweeps import sweep

_composed_once = cache(compose_run)


def main(arguments: Sequence[str]) -> None:
    """Check or run all runs of a command line; refused and failed ones are an error at the end."""
    options = parse(arguments)
    experiment = load(options.experiment)
    _check_backbone(experiment, options)
    todo, absent = available(jobs(experiment, options))
    print(folded(f"{experiment.name}: {experiment.title}"))
    for message in absent:
        print(folded(f"  {message}", sys.stderr), file=sys.stderr)
    if not todo:
        raise UserError(
            f"experiment={experiment.name}: none of these cells has its weights and data here."
        )
    count = len({job.key for job in todo})
    cost, next_step = _texts(experiment, options, todo)
    print(folded(f"  {count} cells, {len(todo)} runs; {cost}"))
    if options.check:
        _check(todo)
        return
    runs = [sweep_job.Job(n, job.title, job.overrides) for n, job in enumerate(todo)]
    done = sweep.do(runs, sweep.options_of(options.overrides))
    print(f"  {next_step}")
    if not done:
        counts = Counter(run.stage for run in runs)
        ended = ", ".join(f"{count} {stage}" for stage, count in counts.items())
        raise UserError(f"of {len(runs)} runs: {ended}; type the same command to go on.")


def _check_backbone(experiment: Experiment, options: Options) -> None:
    """Refuse one backbone or folder for cells of several; at a scale, none is the printed one."""
    typed = [o for o in options.overrides if o.startswith(("backbone=", "backbone.path="))]
    if not typed or options.scale is not None:
        return
    printed = jobs(experiment, replace(options, seeds=None, overrides=()))
    backbones = {_composed(job, "backbone").backbone_name for job in printed}
    if len(backbones) > 1:
        raise UserError(
            f"{typed[-1]} would replace the backbone of all these cells: "
            f"{', '.join(sorted(backbones))}.\n"
            f"Select the cells of one backbone, as in cell='{_pattern(printed[-1])}'."
        )


def _pattern(job: TableJob) -> str:
    return f"{job.key.partition('.')[0]}.*"


def available(todo: Sequence[TableJob]) -> tuple[list[TableJob], list[str]]:
    """Return the runs whose weights and data are here, and a message for each that is not."""
    present: list[TableJob] = []
    absent: dict[str, set[str]] = {}
    for job in todo:
        backbone = _composed(job, "backbone")
        task = _composed(job, "task=", "task.source", "data_dir=")
        if backbone.backbone_source is not None:
            source = f"{backbone.backbone_name}, which is not here: {backbone.backbone_source}"
            source += f"; in this table: cell='{_pattern(job)}' backbone.path=DIR"
        elif task.data_source is not None:
            source = f"task={task.names['task']}, whose data are not here: "
            source += f"{task.data_source.rstrip('.')}; then add data_dir=DIR"
        else:
            present.append(job)
            continue
        absent.setdefault(source, set()).add(job.key)
    return present, [f"left out: {len(keys)} cells of {source}" for source, keys in absent.items()]


def _composed(job: TableJob, *keys: str) -> Composed:
    """Return the configuration of those overrides of a job that start with some keys."""
    return _composed_once(tuple(o for o in job.overrides if o.startswith(keys)))


def _texts(experiment: Experiment, options: Options, todo: Sequence[TableJob]) -> tuple[str, str]:
    """Return what the runs cost, and how to see their results."""
    paper, _, table = experiment.name.partition("/")
    shown = f"ptrun report --paper {paper}"
    if not options.scale:
        cost = f"GPU hours of the whole table: {experiment.hours}"
        return cost, f"to compare with the paper, type: {shown}"
    if experiment.pocket:
        cost = _minutes(experiment, options, todo)
        return cost, f"for the table: {shown} --table {table} --scale pocket"
    cost = "a smoke test: two steps each, and no rows in a report"
    return cost, "a smoke test: the report does not read these runs"


def _minutes(experiment: Experiment, options: Options, todo: Sequence[TableJob]) -> str:
    """Return the minutes of the runs that are left, from those of the whole table."""
    text, left = experiment.pocket.minutes if experiment.pocket else "", 0
    every = len(jobs(experiment, replace(options, cell=None, seeds=None, overrides=())))
    for job in todo:
        run, seed = _composed(job, "outputs=", "name="), job.title.rpartition("seed=")[2]
        folders = (run.outputs / run.name).glob(f"*-s{seed}-*")
        left += not any(state_of(folder).kind == "finished" for folder in folders)
    if left == every or not (minutes := re.search(r"(\d+) minutes", text)):
        return text if left == every else f"{text} for all {every} runs"
    return f"{left} left, " + text.replace(minutes[0], f"{-(-int(minutes[1]) * left // every)} min")


def _check(todo: Sequence[TableJob]) -> None:
    """Plan one run of each cell and report all problems together."""
    from ptrun.runs.plan import plan

    first_jobs = {job.key: job for job in reversed(todo)}
    wrong = {}
    for key, job in first_jobs.items():
        try:
            plan(compose_run(job.overrides))
        except UserError as error:
            wrong[key] = str(error)
    for key, reason in wrong.items():
        print(f"  {key}: {reason}", file=sys.stderr)
    print(f"  {len(first_jobs) - len(wrong)} of {len(first_jobs)} cells can be run as they are")
    if wrong:
        raise UserError(f"{len(wrong)} cells cannot be run; see above.")
