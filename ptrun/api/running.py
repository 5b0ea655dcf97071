"""The functions of `import ptrun`. They do what the commands do, and return what those print."""

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ptrun.api.overrides import typed
from ptrun.api.quiet import quiet, same_random
from ptrun.api.run import Run
from ptrun.errors import UserError

if TYPE_CHECKING:
    from ptrun.drawing.results import Results
    from ptrun.sweeps.job import Job

_COMMAND_ONLY = ("on", "dry_run", "shard")  # keys of `sweep`


def run(*overrides: str, **values: Any) -> Run:
    """Do one run, or return it if it is finished; an interrupted one resumes.

        ptrun.run(method="ptuning_v2", task="conll03", seed=1, train={"lr": 1e-2})
        ptrun.run("method=ptuning_v2", "train.lr=1e-2", task="conll03", seed=1)

    Args:
        overrides: `KEY=VALUE`, as on the command line.
        values: the same as Python values; a dict holds the keys inside a key.

    Raises:
        UserError: the configuration is wrong; nothing was written.
        RunFailed: training failed; the folder has the reason.
    """
    from ptrun.config.components import permission, without_permission
    from ptrun.config.explain import composed
    from ptrun.folder.recognition import finished

    line = typed(overrides, values)
    with quiet():
        one = composed(without_permission(line))
        done = finished(one)
        if done is None:  # only now import torch
            from ptrun.runs.launch import launch

            with same_random():
                done = launch(one)
    return Run(one.outputs / one.name / done.run_id, done, permission(line))


def sweep(
    runs: Iterable[Mapping[str, Any] | Sequence[str] | str], *overrides: str, **values: Any
) -> list[Run]:
    """Do runs as `ptrun -m` does: in worker processes, sharing passes where possible.

        ptrun.sweep([{"seed": seed} for seed in (1, 2, 3)], method="ptuning_v2", task="cb")

    Args:
        runs: for each run what only it has: a dict of values, or overrides.
        overrides: of all runs, as in `run`.
        values: of all runs, as in `run`.

    Returns:
        The runs in order. A run whose training failed has the status `failed`.

    Raises:
        UserError: some runs were refused, or other processes do them. The others have ended, and
            the same call goes on from there.
    """
    from ptrun.config.components import permission, without_permission
    from ptrun.sweeps.job import Job
    from ptrun.sweeps.scheduler import Scheduler
    from ptrun.sweeps.sweep import options_of
    from ptrun.sweeps.view import View

    with quiet():
        line = typed(overrides, values)
        common = without_permission(line)
        _check_sweep(common)
        own = [_typed(one) for one in runs]
        jobs = [Job(i, " ".join(one), [*common, *one]) for i, one in enumerate(own)]
        Scheduler(jobs, options_of(common), View(len(jobs), quiet=True)).run()
        return _ended(jobs, permission(line))


def load(
    run: str | PathLike[str], *, outputs: str | PathLike[str] = "outputs", **values: Any
) -> Run:
    """Return a run that has ended.

    Args:
        run: its folder, its id, the start of its id, or the 8 digits at the end.
        outputs: the folder where ids are looked up.
        values: options of `Run.predict`, as `ptrun predict` takes them: `hardware="gpu"`,
            `backbone={"path": "DIR"}`, `data_dir="DIR"`.

    Raises:
        UserError: there is no such run, or more than one, or it has not ended.
    """
    from ptrun.folder.find import find

    found = find(str(run), "load", Path(outputs))
    options = typed([], {**values, "outputs": outputs})
    return Run(found.folder, found.result, options)


def report(
    source: str | PathLike[str] | Iterable[Run] = "outputs",
    *,
    over: str | None = None,
    best: int | None = None,
    vote: bool = False,
) -> "Results":
    """Return the table of results over seeds.

    Args:
        source: a folder of results, or runs.
        over: a key, such as `method.length`, whose values are merged into one row.
        best: add the mean of this many of the highest test scores.
        vote: add the score of the seeds' majority.

    Raises:
        UserError: the folder is missing or has no result, or an option is wrong.
    """
    from ptrun.ledger.report import of_runs, table

    if isinstance(source, str | PathLike):
        return table(Path(source), over, best=best, vote=vote)
    found = {one.folder: one.result for one in source}
    return of_runs(found, f"{len(found)} runs", over, best=best, vote=vote)


def _typed(one: Mapping[str, Any] | Sequence[str] | str) -> list[str]:
    """Return what one run of a sweep has, as overrides."""
    return typed([], one) if isinstance(one, Mapping) else typed(one, {})


def _check_sweep(common: Sequence[str]) -> None:
    for one in common:
        root, _, key = one.lstrip("+").partition("=")[0].partition(".")
        if root == "sweep" and key in _COMMAND_ONLY:
            raise UserError(f"{one}: type it on the command line, ptrun -m ... {one}.")


def _ended(jobs: "Sequence[Job]", options: Sequence[str]) -> list[Run]:
    """Return the runs of jobs.

    Raises:
        UserError: some have not ended.
    """
    from ptrun.folder import result

    runs, left = [], []
    for job in jobs:
        ended = job.folder is not None and job.stage in ("finished", "failed")
        done = result.read(job.folder) if ended and job.folder else None
        if done is None or job.folder is None:
            left.append(f"{job.title or f'run {job.index + 1}'}: {job.text or job.stage}")
        else:
            runs.append(Run(job.folder, done, options))
    if left:
        text = "\n  ".join(left)
        raise UserError(f"{len(left)} of {len(jobs)} runs are not done:\n  {text}")
    return runs
