"""`ptrun experiment=dpt/table1 [check=true] [+scale=pocket] [cell=PATTERN] [KEY=VALUE ...]`.

This command does all runs of a table (`ptrun.sweeps`). It skips finished runs, resumes interrupted
ones, and continues after a failure. It leaves out cells whose backbone or data are on
no hub and were not imported.
"""

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

from ptrun.config.compose import Composed, compose_run
from ptrun.errors import UserError, folded
from ptrun.ledger.experiment import Experiment, Options, TableJob, jobs, load, parse
from ptrun.ledger.rows import Requests
from ptrun.sweeps import job as sweep_job
from ptrun.sweeps import sweep


def main(arguments: Sequence[str], *, as_variant: bool = False) -> None:
    """Check or run all runs of a command line.

    `as_variant` allows another backbone; the report lists its runs without a comparison.

    Raises:
        UserError: an option is unknown, or some runs are refused or failed.
    """
    options = parse(arguments)
    experiment = load(options.experiment)
    _check_backbone(experiment, options, as_variant=as_variant)
    todo, absent = with_weights(jobs(experiment, options))
    print(folded(f"{experiment.name}: {experiment.title}"))
    todo, unread = with_data(todo)
    for message in [*absent, *unread]:
        print(folded(f"  {message}", sys.stderr), file=sys.stderr)
    if not todo:
        raise UserError(
            f"experiment={experiment.name}: none of these cells has its weights and data here."
        )
    count = len({job.key for job in todo})
    print(folded(f"  {count} cells, {len(todo)} runs{_cost(experiment, options)}"))
    if options.check:
        _check(todo)
    else:
        if experiment.pocket or not options.scale:
            _keep_requests(experiment.at(options.scale), todo)
        _run(todo, options.overrides, _next_step(experiment, options))


def _check_backbone(experiment: Experiment, options: Options, *, as_variant: bool) -> None:
    """Refuse another backbone than a cell's own, and one folder for several backbones.

    A scale allows it, because no report shows those runs.
    """
    typed = [o for o in options.overrides if o.partition("=")[0] in ("backbone", "backbone.path")]
    if not typed or options.scale is not None:
        return
    printed = jobs(experiment, replace(options, overrides=()))
    backbones = {job.key: _backbone_of(job).backbone_name for job in printed}
    if len(names := sorted(set(backbones.values()))) > 1:
        raise UserError(
            f"{typed[-1]} would replace the backbone of all these cells: {', '.join(names)}.\n"
            f"Select the cells of one backbone, as in cell='{_pattern(backbones)}'."
        )
    other = [o for o in typed if o.startswith("backbone=") and o != f"backbone={names[0]}"]
    if other and not as_variant:
        raise UserError(
            f"{other[-1]}: the printed numbers of these cells are of {names[0]}.\n"
            "Type --as-variant too, and the report lists these runs without a comparison, or "
            "backbone.path=DIR for a local copy of the model."
        )


def _pattern(backbones: Mapping[str, str]) -> str:
    """Return a pattern of cells that share the last cell's backbone, else that cell's key."""
    key = list(backbones)[-1]
    prefix = f"{key.partition('.')[0]}."
    names = {name for other, name in backbones.items() if other.startswith(prefix)}
    return f"{prefix}*" if len(names) == 1 else key


def with_weights(todo: Sequence[TableJob]) -> tuple[list[TableJob], list[str]]:
    """Return the runs with an available backbone, and a message for each other backbone."""
    present: list[TableJob] = []
    absent: dict[str, dict[str, str]] = {}
    for job in todo:
        composed = _backbone_of(job)
        if composed.backbone_source is None:
            present.append(job)
        else:
            source = f"{composed.backbone_name}, which is not here: {composed.backbone_source}"
            absent.setdefault(source, {})[job.key] = composed.backbone_name
    return present, [
        f"left out: {len(backbones)} cells of {source}; in this table: "
        f"cell='{_pattern(backbones)}' backbone.path=DIR"
        for source, backbones in absent.items()
    ]


def with_data(todo: Sequence[TableJob]) -> tuple[list[TableJob], list[str]]:
    """Return the runs whose task has its data, and a message for each other task."""
    present: list[TableJob] = []
    absent: dict[str, set[str]] = {}
    for job in todo:
        task = _composed(job, "task=", "task.source", "data_dir=")
        if task.data_source is None:
            present.append(job)
        else:
            source = f"task={task.names['task']}, whose data are not here: {task.data_source}"
            absent.setdefault(source, set()).add(job.key)
    return present, [
        f"left out: {len(keys)} cells of {source.rstrip('.')}; then add data_dir=DIR"
        for source, keys in absent.items()
    ]


def _backbone_of(job: TableJob) -> Composed:
    return _composed(job, "backbone")


def _composed(job: TableJob, *keys: str) -> Composed:
    """Return the configuration of those overrides of a job that start with some keys."""
    return _of(tuple(o for o in job.overrides if o.startswith(keys)))


@cache
def _of(typed: tuple[str, ...]) -> Composed:
    return compose_run(typed)


def _next_step(experiment: Experiment, options: Options) -> str:
    """Return how to see the results."""
    if options.scale and not experiment.pocket:
        return "a smoke test: the report does not read these runs"
    paper, _, table = experiment.name.partition("/")
    if options.scale:
        return f"for the table: ptrun report --paper {paper} --table {table} --scale pocket"
    return f"to compare with the paper, type: ptrun report --paper {paper}"


def _cost(experiment: Experiment, options: Options) -> str:
    if not options.scale:
        return f"; GPU hours of the whole table: {experiment.hours}"
    if experiment.pocket:
        return f"; {experiment.pocket.minutes}"
    return "; a smoke test: two steps each, and no rows in a report"


def _keep_requests(experiment: Experiment, todo: Sequence[TableJob]) -> None:
    """Compose what the cells request, so that the report need not."""
    requests, keys = Requests(compose_run(todo[0].overrides).outputs), {job.key for job in todo}
    for cell in experiment.cells:
        if cell.key in keys:
            requests.of(experiment, cell)
    requests.save()


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


def _run(todo: Sequence[TableJob], overrides: Sequence[str], next_step: str) -> None:
    """Do the runs that are left."""
    runs = [sweep_job.Job(n, job.title, job.overrides) for n, job in enumerate(todo)]
    done = sweep.do(runs, sweep.options_of(overrides))
    print(f"  {next_step}")
    if not done:
        counts = Counter(run.stage for run in runs)
        told = ", ".join(f"{count} {stage}" for stage, count in counts.items())
        raise UserError(f"of {len(runs)} runs: {told}; type the same command to go on.")
