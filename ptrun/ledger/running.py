"""`ptrun experiment=dpt/table1 [check=true] [+scale=pocket] [cell=PATTERN] [KEY=VALUE ...]`.

All runs of a table, one after another: what is done is skipped, what was interrupted goes on, what
fails is told and the next begins. Backbones that are on no hub and were not imported are left out.
"""

import logging
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

from ptrun.config.compose import Composed
from ptrun.config.explain import composed
from ptrun.errors import RankLost, RunFailed, UserError
from ptrun.ledger.experiment import Experiment, load
from ptrun.ledger.jobs import Asked, Job, asked, jobs
from ptrun.run.launch import launch
from ptrun.run.plan import plan

_LOG = logging.getLogger(__name__)


def main(arguments: Sequence[str]) -> None:
    """Check or do all runs that a command line asks for.

    Raises:
        UserError: something is unknown, or some runs are refused or failed.
    """
    wanted = asked(arguments)
    experiment = load(wanted.experiment)
    _check_backbone(experiment, wanted)
    todo, absent = with_weights(jobs(experiment, wanted))
    print(f"{experiment.name}: {experiment.title}")
    for told in absent:
        print(f"  {told}", file=sys.stderr)
    if not todo:
        raise UserError(f"experiment={experiment.name}: none of these cells has its weights here.")
    print(f"  {len({job.key for job in todo})} cells, {len(todo)} runs{_cost(experiment, wanted)}")
    _check(todo) if wanted.check else _run(todo, _after(experiment, wanted))


def _check_backbone(experiment: Experiment, wanted: Asked) -> None:
    """Refuse one backbone or folder for cells of several: the report would show it as all of them.

    At a scale, whose runs no report shows, anything goes.
    """
    typed = [o for o in wanted.overrides if o.partition("=")[0] in ("backbone", "backbone.path")]
    if not typed or wanted.scale is not None:
        return
    printed = jobs(experiment, replace(wanted, overrides=()))
    own = {job.key: _backbone_of(job).backbone_name for job in printed}
    if len(names := sorted(set(own.values()))) > 1:
        raise UserError(
            f"{typed[-1]} would stand for all of these cells: {', '.join(names)}.\n"
            f"Name those of one backbone, as in cell='{_pattern(own)}'."
        )


def _pattern(own: Mapping[str, str]) -> str:
    """Return what names cells of one backbone alone: by the paper's name for it, else one cell."""
    key = list(own)[-1]
    begins = f"{key.partition('.')[0]}."
    alike = {name for other, name in own.items() if other.startswith(begins)}
    return f"{begins}*" if len(alike) == 1 else key


def with_weights(todo: Sequence[Job]) -> tuple[list[Job], list[str]]:
    """Return the runs whose backbone can be had, and of each other backbone what to do for it."""
    kept: list[Job] = []
    absent: dict[str, dict[str, str]] = {}
    for job in todo:
        composed = _backbone_of(job)
        if composed.backbone_source is None:
            kept.append(job)
        else:
            reason = f"{composed.backbone_name}, which is not here: {composed.backbone_source}"
            absent.setdefault(reason, {})[job.key] = composed.backbone_name
    return kept, [
        f"left out: {len(own)} cells of {told}; in this table: "
        f"cell='{_pattern(own)}' backbone.path=DIR"
        for told, own in absent.items()
    ]


def _backbone_of(job: Job) -> Composed:
    return _backbone(tuple(o for o in job.overrides if o.startswith("backbone")))


@cache
def _backbone(typed: tuple[str, ...]) -> Composed:
    return composed(typed)


def _after(experiment: Experiment, wanted: Asked) -> str:
    """Return where what was run is seen."""
    if wanted.scale:
        return "tried small, which the report does not show"
    return f"ptrun report --paper {experiment.paper} shows them beside the paper"


def _cost(experiment: Experiment, wanted: Asked) -> str:
    """Return what the paper's whole table costs; nothing in the pocket world."""
    return "" if wanted.scale else f"; GPU hours of the whole table: {experiment.hours}"


def _check(todo: Sequence[Job]) -> None:
    """Compose and name one run of each cell; tell all that is wrong, together."""
    first = {job.key: job for job in reversed(todo)}
    wrong = {}
    for key, job in first.items():
        try:
            plan(composed(job.overrides))
        except UserError as error:
            wrong[key] = str(error)
    for key, reason in wrong.items():
        print(f"  {key}: {reason}", file=sys.stderr)
    print(f"  {len(first) - len(wrong)} of {len(first)} cells can be run as they are")
    if wrong:
        raise UserError(f"{len(wrong)} cells cannot be run; see above.")


def _run(todo: Sequence[Job], after: str) -> None:
    ends: Counter[str] = Counter()
    for number, job in enumerate(todo, start=1):
        _LOG.info("run %d of %d: %s", number, len(todo), job.key)
        ends[_end(job)] += 1
    told = ", ".join(f"{count} {end}" for end, count in ends.items())
    print(f"  {told}; {after}")
    if set(ends) != {"finished"}:
        raise UserError(f"of {len(todo)} runs: {told}; the same command tries the rest again.")


def _end(job: Job) -> str:
    """Do a run and return how it ended."""
    try:
        launch(composed(job.overrides))
    except (UserError, RunFailed, RankLost) as error:
        print(f"ptrun: {job.key}: {error}", file=sys.stderr)
        return "refused" if isinstance(error, UserError) else "failed"
    return "finished"
