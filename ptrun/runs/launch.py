"""Runs from the command line, in as many processes as their hardware requests.

A process that torchrun, deepspeed or srun started is one rank of the run. Otherwise this process
starts the ranks on this machine, if the hardware has several, and waits for them.
"""

import logging
import os
from collections.abc import Sequence
from contextlib import ExitStack

from ptrun.config.compose import Composed
from ptrun.errors import RankLost, RunFailed, UserError
from ptrun.folder import lease, result
from ptrun.hardware.environment import environment, imported
from ptrun.runs.longer import log_shorter
from ptrun.runs.plan import Plan, ordered, plan
from ptrun.runs.recipe import checked, found, raised, together
from ptrun.runs.record import Ended
from ptrun.start.pretraining import unmet
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
        from ptrun.hardware.start_ranks import check_world

        check_world(composed.hardware, int(launched["WORLD_SIZE"]))
        os.environ.update(launched)
    planned = plan(composed)
    launch_needed(planned)
    if not (_rank() or planned.folder.exists()):
        log_shorter(planned.folder, planned.content)
    (ended,) = launch_together([planned])
    return raised(ended)


def launch_needed(planned: Plan) -> None:
    """Do the runs that a run needs and that are not finished.

    Raises:
        UserError: one of them is refused.
        RunFailed: one of them failed.
    """
    for other in ordered(planned):
        # several ranks do the same, whatever each sees of a folder that changes
        if _rank() is None and (other.folder / result.FINISHED).is_file():
            continue
        _LOG.info("%s needs %s, which is done once", planned.run_id, other.run_id)
        (ended,) = launch_together([other])
        if isinstance(ended, Exception):
            raise unmet(other.folder, ended) from ended


def launch_together(plans: Sequence[Plan]) -> list[Ended]:
    """Do runs in shared passes, each under its lease; return a result or an error of each."""
    ends: dict[int, Ended] = {}
    with ExitStack() as leases:
        for place, planned in enumerate(plans):
            try:
                if not _rank():  # of several ranks the first holds the leases
                    wait = planned.request.sweep.wait
                    leases.enter_context(lease.held(planned.folder, wait=wait))
            except UserError as error:
                ends[place] = error
        left = [place for place in range(len(plans)) if place not in ends]
        ended = _do([plans[place] for place in left]) if left else []
    ends |= dict(zip(left, ended, strict=True))
    return [ends[place] for place in range(len(plans))]


def _rank() -> int | None:
    """Return the rank that a launcher gave this process."""
    launched = environment(os.environ)
    return None if launched is None else int(launched["RANK"])


def _do(plans: Sequence[Plan]) -> list[Ended]:
    """Do runs together; an error that ends all of several is raised."""
    try:
        if plans[0].hardware.divides and _rank() is None:
            return [_start_ranks(run) for run in plans]
        return together(plans)
    except (UserError, RunFailed) as error:
        if len(plans) > 1:
            raise
        return [error]


def _start_ranks(planned: Plan) -> RunResult:
    """Do a run by ranks on this machine, unless it is finished."""
    import torch

    from ptrun.hardware.start_ranks import local_ranks, start

    ranks = local_ranks(planned.hardware, torch.cuda.device_count())
    if (ended := found(planned)) is not None:
        return raised(ended)
    start(planned.request, ranks)
    done = result.read(planned.folder)
    if done is None:
        raise RankLost(f"all ranks exited without an error, but {planned.folder} has no result.")
    return raised(checked(done, planned.folder))
