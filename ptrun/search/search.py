"""A search: rounds of trials that dev scores, then the winner on fresh seeds, which test scores."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from ptrun.config.explain import composed
from ptrun.config.schema import On, SweepConfig
from ptrun.errors import UserError
from ptrun.files import below
from ptrun.folder import result
from ptrun.search.space import Space, space
from ptrun.search.study import Study
from ptrun.sweeps.job import Job
from ptrun.sweeps.sweep import do, options_of
from ptrun.training.selection_bias import selection_bias
from ptrun.types import RunResult

FILE = "search.json"
TRIALS = "trials"
"""The folder of the trials, below that of the search."""


@dataclass(frozen=True)
class Asked:
    """What was typed: overrides, trials, those of a round, seeds of the winner, the sampler."""

    overrides: tuple[str, ...]
    trials: int
    together: int
    seeds: int
    sampler: str


def search(asked: Asked) -> dict[str, Any]:
    """Do a search, or what is left of it, and return its report.

    Raises:
        UserError: a range or an option is wrong, or no trial has a result.
    """
    own = space(asked.overrides)
    base = composed(own.fixed)
    _check(base.sweep)
    folder = below(base.outputs, base.name)
    total = asked.trials if asked.sampler != "grid" else _size(own)
    study = Study(folder, own, asked.sampler, base.seed, _decisive(asked))
    while len(study.ended) < total:
        trials = study.round(asked.together, total)
        _do(study, trials, own, base.name)
    best = study.winner()
    if best is None:
        raise UserError(f"search: none of {total} trials has a result; see the messages above.")
    report = _report(study, best, _fresh(study.chosen(best), own, base.seed, asked.seeds))
    result.write_json(folder / FILE, report)
    return report


def _check(options: SweepConfig) -> None:
    if options.dry_run or options.shard:
        raise UserError(
            "search: leave out sweep.dry_run and sweep.shard; a round needs all trials."
        )
    if options.on is On.slurm and not options.wait:
        raise UserError("search: a round needs its trials; type sweep.wait=true too.")


def _size(own: Space) -> int:
    return math.prod(len(values) for values in own.grid.values())


def _decisive(asked: Asked) -> dict[str, Any]:
    """Return what decides the proposals; where the runs go and how they are done does not."""
    ways = ("sweep.", "cluster", "outputs=", "hardware.device", "tracking")
    overrides = [o for o in asked.overrides if not o.startswith(ways)]
    return {"command": sorted(overrides), "together": asked.together, "sampler": asked.sampler}


def _do(study: Study, trials: Sequence[FrozenTrial], own: Space, name: str) -> None:
    """Do the trials of a round and record their dev scores."""
    place = f"name={name}/{TRIALS}"
    jobs = [
        Job(n, " ".join(study.overrides(trial)[:-1]), [*own.fixed, *study.overrides(trial), place])
        for n, trial in enumerate(trials)
    ]
    do(jobs, options_of(own.fixed), brief=True)
    if all(job.stage == "refused" for job in jobs):
        raise UserError(f"search: {jobs[0].text}")
    if left := [job for job in jobs if not _has_ended(job)]:
        why = f" ({left[0].text})" if left[0].text else ""
        raise UserError(
            f"search: {len(left)} trials are not finished{why}; type the same command to go on."
        )
    for trial, job in zip(trials, jobs, strict=True):
        done = result.read(job.folder) if job.stage == "finished" and job.folder else None
        _tell(study, trial, done)


def _has_ended(job: Job) -> bool:
    """Return whether the same command would end the same: a trial that ran out of disk would not.

    A failed training has recorded its reason. A combination that is refused has no folder.
    """
    if job.stage == "refused":
        return job.folder is None or not job.folder.exists()
    recorded = job.folder is not None and (job.folder / result.FAILED).is_file()
    return job.stage == "finished" or (job.stage == "failed" and recorded)


def _tell(study: Study, trial: FrozenTrial, done: RunResult | None) -> None:
    if done is None or not done.metrics["dev"]:
        study.tell(trial, None, [])
        return
    facts = done.manifest
    # floors are of the task's metric, and of runs with one curve
    ranked = facts.get("history", []) if facts.get("selected_by") != "loss" else []
    curve = [(row["step"], row[done.metric]) for row in ranked]
    value = done.metrics["dev"][done.metric]
    study.tell(trial, value, curve, abandoned=facts.get("abandoned", False))


def _fresh(chosen: Sequence[str], own: Space, seed: int, count: int) -> list[RunResult]:
    """Do the winner on seeds that no trial had.

    Raises:
        UserError: some of these runs are not finished.
    """
    jobs = [
        Job(n, f"the winner, seed={seed + 1 + n}", [*own.fixed, *chosen, f"seed={seed + 1 + n}"])
        for n in range(count)
    ]
    do(jobs, options_of(own.fixed))
    if any(job.stage != "finished" for job in jobs):
        raise UserError("search: the winner is not finished; type the same command to go on.")
    found = [result.read(job.folder) for job in jobs if job.folder is not None]
    return [one for one in found if one is not None]


def _report(study: Study, best: FrozenTrial, fresh: Sequence[RunResult]) -> dict[str, Any]:
    first = fresh[0]
    values = [
        t.value for t in study.trials if t.state is TrialState.COMPLETE and t.value is not None
    ]
    return {
        "metric": first.metric,
        "winner": {"trial": best.number, **best.params},
        "candidates": len(study.ended),
        "abandoned": sum(trial.state is TrialState.PRUNED for trial in study.trials),
        "failed": sum(trial.state is TrialState.FAIL for trial in study.trials),
        "dev_of_the_winner_in_the_search": best.value,
        "expected_selection_bias": _bias(values, first),
        "fresh_seeds": [one.seed for one in fresh],
        "dev": _spread([one.metrics["dev"][one.metric] for one in fresh]),
        "test": _spread([one.metrics["test"][one.metric] for one in fresh]),
        "runs": [one.run_id for one in fresh],
    }


def _bias(values: Sequence[float], first: RunResult) -> float | None:
    """Return the expected optimism of the winner's dev score, in points; None if unknown."""
    examples = first.manifest.get("answered", {}).get("dev", 0)
    known = examples and all(0 <= value <= 100 for value in values)
    return selection_bias(values, examples) if known else None


def _spread(values: Sequence[float]) -> dict[str, Any]:
    spread = statistics.stdev(values) if len(values) > 1 else None
    return {"mean": statistics.fmean(values), "sd": spread, "values": list(values)}
