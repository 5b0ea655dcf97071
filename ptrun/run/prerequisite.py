"""The run whose prompt another begins as: done before it, once, whoever asks for it first."""

import logging
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace

from ptrun.config import build
from ptrun.config.compose import Composed
from ptrun.errors import RunFailed, UserError
from ptrun.method.base import Method
from ptrun.run import result
from ptrun.run.plan import Plan
from ptrun.run.pretraining import alone, as_typed
from ptrun.run.saved_prompt import check_fits, fingerprint, prompt_of
from ptrun.run.store import bound_to
from ptrun.types import RunResult

_LOG = logging.getLogger(__name__)
Run = Callable[[Composed], RunResult]


def with_forerunner(planned: Plan, method: Method, run: Run) -> Plan:
    """Return the plan with the prompt it begins as at hand: made now, unless it was before.

    Raises:
        UserError: that run's prompt is of another form, or the run is refused.
        RunFailed: it could not be learned.
    """
    first, start = planned.pretraining, planned.start
    if first is None or start.folder is None:
        return planned
    other: Method = build.build(first.composed.config["method"], first.backbone, first.task)
    if not prompt_of(method):
        raise UserError("start=pretrained: this method learns no prompt; type start=random.")
    check_fits(method, prompt_of(other), start.folder)
    if not (start.folder / result.FINISHED).is_file():
        _make(first, run, main=planned.engine.world.main)
    found = fingerprint(start.folder, bound_to(planned.backbone))
    _LOG.info("the prompt begins as that of %s", start.folder)
    return replace(planned, start=replace(start, digest=found))


def _make(first: Plan, run: Run, *, main: bool) -> None:
    """Do the run that another begins as, one process at a time; the others find it done.

    Of several ranks, which do it together, the first (`main`) holds the lock for all.

    Raises:
        UserError: it is refused; its keys are named as they are typed here.
        RunFailed: it failed, now or before.
    """
    with alone(first.folder) if main else nullcontext():
        if result.read(first.folder) is None:
            _LOG.info("pre-training the prompt: %s; next time it is found", first.run_id)
        try:
            run(first.composed)
        except UserError as error:
            raise UserError(f"the prompt is not pre-trained: {as_typed(error)}") from error
        except RunFailed as error:
            raise RunFailed(
                f"the prompt was not pre-trained: {str(error).splitlines()[0]}\nGive it another "
                f"recipe (pretraining.train.lr=...), or delete {first.folder} to try again."
            ) from error
