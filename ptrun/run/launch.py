"""One run from the command line, in as many processes as its hardware requests.

A process that torchrun, deepspeed or srun started is one rank of the run. Otherwise this process
starts the ranks on this machine, if the hardware has several, and waits for them.
"""

import logging
import os
from collections.abc import Sequence

from ptrun.config.compose import Composed
from ptrun.errors import RankLost
from ptrun.hardware.launcher import environment
from ptrun.hardware.rank_count import check_world, local_ranks
from ptrun.hardware.start_ranks import COMMAND, start
from ptrun.run import recognition, result
from ptrun.run.plan import Plan, plan
from ptrun.run.prerequisite import with_prerequisite
from ptrun.run.recipe import checked_result, run
from ptrun.types import RunResult

_LOG = logging.getLogger(__name__)


def launch(composed: Composed, command: Sequence[str] = COMMAND) -> RunResult:
    """Do one run: alone, as the rank that a launcher made this process, or by starting ranks.

    Raises:
        UserError: the user can fix it; nothing is left behind, no rank was started.
        RunFailed: training failed.
        RankLost: a rank died; nothing is recorded.
    """
    launched = environment(os.environ)
    if launched is not None:
        check_world(composed.hardware, int(launched["WORLD_SIZE"]))
        os.environ.update(launched)
    with recognition.opened_files() as opened:
        planned = plan(composed)
    files = recognition.states(opened, planned.backbone.folder, planned.outputs)
    starts = launched is None and planned.hardware.divides
    done = _start_ranks(planned, command) if starts else run(planned)
    if launched is None:
        recognition.remember(composed, planned.folder, files)
    return done


def _start_ranks(planned: Plan, command: Sequence[str]) -> RunResult:
    """Do a run by ranks on this machine, unless it is finished."""
    import torch

    ranks = local_ranks(planned.hardware, torch.cuda.device_count())
    done = None if planned.rerun else result.read(planned.folder)
    if done is not None:
        _LOG.info("already finished; rerun=true repeats it")
        return checked_result(done, planned.folder)
    if planned.pretraining is not None:  # it starts its own ranks, so it must end before these
        method = planned.method.build(planned.backbone, planned.task)
        with_prerequisite(planned, method, lambda first: _start_ranks(first, command))
    start(planned.request, ranks, command)
    done = result.read(planned.folder)
    if done is None:
        raise RankLost(f"all ranks exited without an error, but {planned.folder} has no result.")
    return checked_result(done, planned.folder)
