"""The prerequisite run of `start=pretrained`: done once, before the first run that needs it."""

import logging
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace

from ptrun.errors import RunFailed, UserError
from ptrun.folder import lease, result
from ptrun.method.base import Method
from ptrun.runs.plan import Plan
from ptrun.runs.pretraining import typed_keys
from ptrun.runs.saved_prompt import check_fits, fingerprint, prompt_of
from ptrun.runs.store import bound_to
from ptrun.types import RunResult

_LOG = logging.getLogger(__name__)
Run = Callable[[Plan], RunResult]


def with_prerequisite(planned: Plan, method: Method, run: Run) -> Plan:
    """Return the plan once its prerequisite run is finished; call `run` if it is not.

    Raises:
        UserError: the prompt of the prerequisite has another form, or that run is refused.
        RunFailed: the prerequisite failed.
    """
    first, start = planned.pretraining, planned.start
    if first is None or start.folder is None:
        return planned
    other: Method = first.method.build(first.backbone, first.task)
    if not prompt_of(method):
        raise UserError("start=pretrained: this method learns no prompt. Type start=random.")
    check_fits(method, prompt_of(other), start.folder)
    if not (start.folder / result.FINISHED).is_file():
        _do(first, run, main=planned.engine.world.main)
    digest = fingerprint(start.folder, bound_to(planned.backbone))
    _LOG.info("the prompt starts from %s", start.folder)
    return replace(planned, start=replace(start, digest=digest))


def _do(first: Plan, run: Run, *, main: bool) -> None:
    """Do the prerequisite run under its lease; of several ranks the first (`main`) holds it.

    Raises:
        UserError: the run is refused. The message names keys as the user types them.
        RunFailed: the run failed, now or before.
    """
    with lease.held(first.folder, wait=True) if main else nullcontext():
        if result.read(first.folder) is None:
            _LOG.info("pre-training the prompt: %s (done once, then reused)", first.run_id)
        try:
            run(first)
        except UserError as error:
            raise UserError(f"the prompt is not pre-trained: {typed_keys(error)}") from error
        except RunFailed as error:
            raise RunFailed(
                f"the prompt was not pre-trained: {str(error).splitlines()[0]}\nGive it another "
                f"recipe (pretraining.train.lr=...), or delete {first.folder} to try again."
            ) from error
