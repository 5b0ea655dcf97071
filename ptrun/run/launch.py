"""One run from the command line, in as many processes as its hardware asks for.

A process that torchrun, deepspeed or srun made a rank does its share; a user's own starts ranks on
this machine where the hardware is several, and waits for them.
"""

import logging
import os
from collections.abc import Sequence

from ptrun.config import build
from ptrun.config.compose import Composed
from ptrun.errors import RankLost
from ptrun.hardware.launcher import environment
from ptrun.hardware.rank_count import check_world, divides, local_ranks
from ptrun.hardware.start_ranks import COMMAND, start
from ptrun.run import result
from ptrun.run.plan import Plan, plan
from ptrun.run.prerequisite import with_forerunner
from ptrun.run.recipe import known, run
from ptrun.types import RunResult

_LOG = logging.getLogger(__name__)


def launch(composed: Composed, command: Sequence[str] = COMMAND) -> RunResult:
    """Do one run, alone, as the rank that a launcher made this process, or by starting ranks.

    Raises:
        UserError: the user can fix it; nothing is left behind, no rank was started.
        RunFailed: training failed.
        RankLost: a rank died; nothing is recorded.
    """
    hardware = composed.config["hardware"]
    own = environment(os.environ)
    if own is not None:
        check_world(hardware, int(own["WORLD_SIZE"]))
        os.environ.update(own)
        return run(composed)
    return _here(composed, command) if divides(hardware) else run(composed)


def _here(composed: Composed, command: Sequence[str]) -> RunResult:
    """Start ranks for a run, unless it was done before."""
    planned = plan(composed)
    ranks = local_ranks(composed.config["hardware"], _gpus())
    done = None if composed.config["rerun"] else result.read(planned.folder)
    if done is not None:
        _LOG.info("done before; rerun=true repeats it")
        return known(done, planned.folder)
    _forerunner(planned, command)
    start(composed, ranks, command)
    done = result.read(planned.folder)
    if done is None:
        raise RankLost(f"the ranks ended well, but left no result in {planned.folder}.")
    return known(done, planned.folder)


def _forerunner(planned: Plan, command: Sequence[str]) -> None:
    """Do the run that this one begins as, with ranks of its own: in these it would wait for it."""
    if planned.pretraining is not None:
        method = build.build(planned.composed.config["method"], planned.backbone, planned.task)
        with_forerunner(planned, method, lambda first: _here(first, command))


def _gpus() -> int:
    import torch

    return torch.cuda.device_count()
