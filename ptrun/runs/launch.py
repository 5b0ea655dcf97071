"""Runs from the command line, in as many processes as their hardware requests.

A process that torchrun, deepspeed or srun started is one rank of the run. Otherwise this process
starts the ranks on this machine, if the hardware has several, and waits for them.
"""

import gc
import logging
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext

from ptrun.config.compose import Composed
from ptrun.errors import RankLost, RunFailed, UserError
from ptrun.folder import lease, recognition, result
from ptrun.hardware.environment import environment, imported
from ptrun.hardware.start_ranks import check_world, local_ranks, on_gpus, start
from ptrun.runs.plan import Plan, plan, with_prerequisite
from ptrun.runs.recipe import checked_result, together
from ptrun.runs.record import Ended, Execution
from ptrun.types import RunResult

_LOG = logging.getLogger(__name__)


def launch(composed: Composed) -> RunResult:
    """Do one run: alone, as the rank that a launcher made this process, or by starting ranks.

    Raises:
        UserError: the user can fix it; nothing is left behind, no rank was started.
        RunFailed: training failed.
        RankLost: a rank died; nothing is recorded.
    """
    imported()
    launched = environment(os.environ)
    if launched is not None:
        check_world(composed.hardware, int(launched["WORLD_SIZE"]))
        os.environ.update(launched)
    (ended,) = launch_together([planned(composed)])
    if isinstance(ended, Exception):
        raise ended
    return ended


def planned(composed: Composed) -> Execution:
    """Return a planned run, with its configuration and what `recognition` calls it.

    Raises:
        UserError: the configuration is wrong.
    """
    key = recognition.key_of(composed)  # before the plan reads a file that changes meanwhile
    return Execution(plan(composed), composed, key)


def launch_together(runs: Sequence[Execution]) -> list[Ended]:
    """Do runs in shared passes, each under its lease; return a result or an error of each.

    Raises:
        RankLost: a rank died; nothing is recorded.
    """
    ends: dict[int, Ended] = {}
    with ExitStack() as leases:
        for place, execution in enumerate(runs):
            try:
                leases.enter_context(_lease(execution))
            except UserError as error:
                ends[place] = error
        left = [place for place in range(len(runs)) if place not in ends]
        ended = _do([runs[place].planned for place in left]) if left else []
    for place, end in zip(left, ended, strict=True):
        ends[place] = end
        composed, folder = runs[place].composed, runs[place].planned.folder
        if isinstance(end, RunResult) and composed is not None and _rank() is None:
            recognition.remember(composed, folder, runs[place].key)
    return [ends[place] for place in range(len(runs))]


def _rank() -> int | None:
    """Return the rank that a launcher gave this process."""
    launched = environment(os.environ)
    return None if launched is None else int(launched["RANK"])


def _lease(execution: Execution) -> AbstractContextManager[None]:
    """Return the lease of a run folder; of several ranks the first holds it."""
    if _rank():
        return nullcontext()
    composed = execution.composed
    return lease.held(execution.planned.folder, wait=composed is not None and composed.sweep.wait)


def _do(plans: Sequence[Plan]) -> list[Ended]:
    """Do runs together; after an error that ends all of them, do each half again on its own."""
    try:
        if plans[0].hardware.divides and _rank() is None:
            return [_start_ranks(run) for run in plans]
        return together(plans)
    except (UserError, RunFailed) as error:
        if len(plans) == 1:
            return [error]
        _LOG.warning("%s\nthe %d runs are done in two groups", error, len(plans))
    gc.collect()
    half = len(plans) // 2
    return [*_do(plans[:half]), *_do(plans[half:])]


def _start_ranks(planned: Plan) -> RunResult:
    """Do a run by ranks on this machine, unless it is finished."""
    import torch

    gpus = torch.cuda.device_count()
    ranks = local_ranks(planned.hardware, gpus)
    done = None if planned.rerun else result.read_named(planned.folder)
    if done is not None:
        _LOG.info("already finished; rerun=true repeats it")
        return checked_result(done, planned.folder)
    if planned.pretraining is not None:  # it starts its own ranks, so it must end before these
        method = planned.method_over(planned.backbone, planned.task)
        with_prerequisite(planned, method, _start_ranks)
    start(planned.request, ranks, forked=not on_gpus(planned.hardware, gpus))
    done = result.read(planned.folder)
    if done is None:
        raise RankLost(f"all ranks exited without an error, but {planned.folder} has no result.")
    return checked_result(done, planned.folder)
