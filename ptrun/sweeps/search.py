"""A search: rounds of trials that dev scores, then the winner on fresh seeds, which test scores."""

import itertools
import math
import random
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from hydra.core.override_parser.types import IntervalSweep, Override, RangeSweep
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import FrozenTrial, TrialState

from ptrun.config.compose import Composed, compose_run
from ptrun.config.overriding import read
from ptrun.config.schema import On
from ptrun.errors import UserError
from ptrun.files import below, read_json
from ptrun.folder import result
from ptrun.metrics import selection_bias
from ptrun.sweeps.job import Job
from ptrun.sweeps.sweep import do, options_of
from ptrun.types import RunResult

# The searched ranges of a command line, in Hydra's grammar, as Optuna's distributions.

_OF_THE_SEARCH = ("seed", "name", "outputs", "trial", "rerun", "keep", "tracking")


@dataclass(frozen=True)
class Space:
    """What is searched, by key, and the overrides of all trials."""

    ranges: dict[str, BaseDistribution]
    fixed: tuple[str, ...]

    @property
    def grid(self) -> dict[str, list[Any]]:
        """The values of each key."""
        return {key: _values(key, range_) for key, range_ in self.ranges.items()}

    @property
    def size(self) -> float:
        """The number of combinations."""
        endless = any(isinstance(range_, FloatDistribution) for range_ in self.ranges.values())
        return math.inf if endless else math.prod(map(len, self.grid.values()))


def space(overrides: Sequence[str]) -> Space:
    """Return what a command line searches; refuse a wrong range, and a key that is the search's."""
    parsed = read(overrides)
    ranges = {
        text.partition("=")[0].lstrip("+"): _distribution(override, text)
        for override, text in zip(parsed, overrides, strict=True)
        if override.is_sweep_override()
    }
    if not ranges:
        raise UserError(
            "search: no key has a range. Type one, such as train.lr='tag(log,interval(1e-4,1e-1))' "
            "or method.length=5,10,20."
        )
    if wrong := [key for key in ranges if key.split(".")[0] in _OF_THE_SEARCH]:
        raise UserError(
            f"search {wrong[0]}: one value only; --seeds N are the seeds of the winner."
        )
    pairs = zip(overrides, parsed, strict=True)
    return Space(ranges, tuple(text for text, o in pairs if not o.is_sweep_override()))


def _distribution(override: Override, text: str) -> BaseDistribution:
    value: Any = override.value()
    if isinstance(value, IntervalSweep):
        integers = isinstance(value.start, int) and isinstance(value.end, int)
        kind: Any = IntDistribution if integers else FloatDistribution
        try:
            return kind(value.start, value.end, log="log" in value.tags)  # type: ignore[no-any-return]
        except ValueError as error:
            raise UserError(f"{text}: {error}") from error
    if isinstance(value, RangeSweep) and all(
        isinstance(number, int) for number in (value.start, value.stop, value.step)
    ):
        values = range(value.start, value.stop, value.step)  # type: ignore[arg-type]
        if not values:
            raise UserError(f"{text}: the range is empty.")
        return IntDistribution(min(values), max(values), step=abs(int(value.step)))
    return CategoricalDistribution(list(dict.fromkeys(override.sweep_string_iterator())))


def _values(key: str, range_: BaseDistribution) -> list[Any]:
    if isinstance(range_, CategoricalDistribution):
        return list(range_.choices)
    if isinstance(range_, IntDistribution):
        return list(range(range_.low, range_.high + 1, range_.step))
    raise UserError(
        f"search {key}: --sampler grid needs a list or a range of integers, not an interval."
    )


# The study of a search. Trials are proposed in rounds.
#
# A proposal is a function of the seed, its number and the trials of earlier rounds. So a search
# that was killed makes the same proposals again, and finds the runs that are finished.

_STARTUP = 5  # complete trials before others are abandoned, as in Optuna's MedianPruner
_SEED_STEP = 100_003  # keeps the seeds of the proposals of two searches apart


class Study:
    """Proposes trials and remembers their results; a PRUNED trial was abandoned.

    The sampler is tpe, random or grid; the seed is that of the proposals.
    """

    def __init__(self, space: Space, sampler: str, seed: int):
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.space, self.seed = space, seed
        self.study = optuna.create_study(direction="maximize")
        samplers = optuna.samplers
        self.kind = samplers.RandomSampler if sampler == "random" else samplers.TPESampler
        self.cells: list[tuple[Any, ...]] = []
        if sampler == "grid":
            self.cells = list(itertools.product(*space.grid.values()))
            random.Random(seed).shuffle(self.cells)

    @property
    def trials(self) -> list[FrozenTrial]:
        """The trials so far, in the order of their numbers."""
        return self.study.get_trials()

    def complete(self) -> list[FrozenTrial]:
        """Return the trials that have a dev score and were not abandoned."""
        return self.study.get_trials(states=(TrialState.COMPLETE,))

    def round(self, size: int) -> list[optuna.Trial]:
        """Return `size` new trials, each with a sampler of its own; tell them before the next."""
        count, trials = len(self.trials), []
        for number in range(count, count + size):
            if self.cells:
                self.study.enqueue_trial(
                    dict(zip(self.space.ranges, self.cells[number], strict=True))
                )
            self.study.sampler = self.kind(seed=(self.seed * _SEED_STEP + number) % 2**32)
            trials.append(self.study.ask(self.space.ranges))
        return trials

    def floors(self) -> dict[int, float]:
        """Return, by step, the median of the complete trials' dev scores at that step.

        A trial whose best score until then is lower is abandoned: the rule of Optuna's
        `MedianPruner`, known before a round starts, so that it does not depend on timing.
        """
        curves = [trial.intermediate_values for trial in self.complete()]
        if len(curves) < _STARTUP:
            return {}
        steps = sorted(set.intersection(*map(set, curves)))
        return {step: statistics.median(curve[step] for curve in curves) for step in steps}

    def tell(
        self, trial: optuna.Trial, value: float | None, curve: Sequence[tuple[int, float]], *,
        abandoned: bool = False,
    ) -> None:  # fmt: skip
        """Note the dev score of a trial and its evaluations; None is a failure."""
        for step, score in curve:
            trial.report(score, step)
        if value is None or abandoned:
            self.study.tell(trial, state=TrialState.FAIL if value is None else TrialState.PRUNED)
        else:
            self.study.tell(trial, value)

    def winner(self) -> FrozenTrial | None:
        """Return the complete trial with the highest dev score, the first of equals."""
        return max(self.complete(), key=lambda trial: trial.value or 0.0, default=None)


def chosen(params: Mapping[str, Any]) -> list[str]:
    """Return the overrides of the searched keys."""
    return [f"{key}={value}" for key, value in params.items()]


def overrides(params: Mapping[str, Any], floors: Mapping[int, float]) -> list[str]:
    """Return the overrides of a trial: the searched keys, and the floors."""
    listed = ",".join(f"{step}:{score!r}" for step, score in floors.items())
    return [*chosen(params), f"trial={{{listed}}}"]


def requested(
    name: str, typed: Sequence[str], base: Composed, file: Path, **others: Any
) -> dict[str, Any]:
    """Return what the report of a search or a comparison records of its command.

    Raises:
        UserError: the command does a part of the trials, or `file` is the report of another one.
    """
    if base.sweep.dry_run or base.sweep.shard:
        raise UserError(
            f"{name}: leave out sweep.dry_run and sweep.shard; the choice needs all trials."
        )
    if base.sweep.on is On.slurm and not base.sweep.wait:
        raise UserError(f"{name}: the choice needs all trials; type sweep.wait=true too.")
    # where the runs go and how they are done decides no choice
    ways = ("sweep.", "cluster", "outputs=", "hardware.device", "tracking")
    command = sorted(override for override in typed if not override.startswith(ways))
    request = {"command": command, **others}
    with suppress(FileNotFoundError, ValueError, AttributeError):  # a damaged one is made again
        before = read_json(file).get("request", request)
        if other := [key for key in request if request[key] != before.get(key)]:
            raise UserError(
                f"{file}: of ptrun {name} with another {other[0]} ({before.get(other[0])}). Type "
                "name=NAME for a new one."
            )
    return request


SEARCH_FILE = "search.json"
TRIALS = "trials"
"""The folder of the trials, below that of the search."""


def search(
    typed: Sequence[str], *, trials: int, together: int, seeds: int, sampler: str
) -> dict[str, Any]:
    """Do a search, or what is left of it, and return its report.

    `together` of all trials are in a round. The winner is scored on test, on `seeds` new seeds.
    """
    searched = space(typed)
    base = compose_run(searched.fixed)
    file = below(base.outputs, base.name, SEARCH_FILE)
    request = requested("search", typed, base, file, together=together, sampler=sampler)
    if sampler == "grid" or searched.size <= trials:  # each combination once: a second is the same
        sampler, trials = "grid", math.prod(map(len, searched.grid.values()))
    study = Study(searched, sampler, base.seed)
    while left := trials - len(study.trials):
        _do(study, min(left, together), base.name)
    best = study.winner()
    if best is None:
        raise UserError(f"search: none of {trials} trials has a result; see the messages above.")
    report = _report(study, best, _fresh(best, searched, base.seed, seeds))
    result.write_json(file, {**report, "request": request})
    return report


def _do(study: Study, size: int, name: str) -> None:
    """Do the trials of a round and record their dev scores."""
    floors, trials, fixed = study.floors(), study.round(size), study.space.fixed
    jobs = [
        Job(
            n,
            " ".join(chosen(trial.params)),
            [*fixed, *overrides(trial.params, floors), f"name={name}/{TRIALS}"],
        )
        for n, trial in enumerate(trials)
    ]
    do(jobs, options_of(fixed), brief=True)
    if all(job.stage == "refused" for job in jobs):
        raise UserError(f"search: {jobs[0].text}")
    if left := [job for job in jobs if not _has_ended(job)]:
        why = f" ({left[0].text})" if left[0].text else ""
        raise UserError(
            f"search: {len(left)} trials are not finished{why}; type the same command to go on."
        )
    for trial, job in zip(trials, jobs, strict=True):
        done = result.read(job.folder) if job.stage == "finished" and job.folder else None
        if done is None or not done.metrics["dev"]:
            study.tell(trial, None, [])
            continue
        facts = done.manifest
        # floors are of the task's metric, and of runs with one curve
        rows = facts.get("history", []) if facts.get("selected_by") != "loss" else []
        curve = [(row["step"], row[done.metric]) for row in rows if done.metric in row]
        value = done.metrics["dev"][done.metric]
        study.tell(trial, value, curve, abandoned=facts.get("abandoned", False))


def _has_ended(job: Job) -> bool:
    """Return whether the same command would end the same: a trial that ran out of disk would not.

    A failed training has recorded its reason. A combination that is refused has no folder.
    """
    if job.stage == "refused":
        return job.folder is None or not job.folder.exists()
    recorded = job.folder is not None and (job.folder / result.FAILED).is_file()
    return job.stage == "finished" or (job.stage == "failed" and recorded)


def _fresh(best: FrozenTrial, searched: Space, seed: int, count: int) -> list[RunResult]:
    """Do the winner on seeds that no trial had."""
    seeds = [f"seed={seed + 1 + n}" for n in range(count)]
    jobs = [
        Job(n, f"the winner, {typed}", [*searched.fixed, *chosen(best.params), typed])
        for n, typed in enumerate(seeds)
    ]
    do(jobs, options_of(searched.fixed))
    results = [result.read(job.folder) for job in jobs if job.stage == "finished" and job.folder]
    done = [run for run in results if run is not None]
    if len(done) < count:
        raise UserError("search: the winner is not finished; type the same command to go on.")
    return done


def _report(study: Study, best: FrozenTrial, fresh: Sequence[RunResult]) -> dict[str, Any]:
    run, trials = fresh[0], study.trials
    # of each combination once: the same run cannot be lucky twice
    scores = {tuple(trial.params.items()): trial.value or 0.0 for trial in study.complete()}
    values = [*scores.values()]
    examples = run.manifest.get("answered", {}).get("dev", 0)
    in_range = examples and all(0 <= value <= 100 for value in values)
    states = Counter(trial.state for trial in trials)
    return {
        "metric": run.metric,
        "winner": {"trial": best.number, **best.params},
        "candidates": len(trials),
        "abandoned": states[TrialState.PRUNED],
        "failed": states[TrialState.FAIL],
        "dev_of_the_winner_in_the_search": best.value,
        # the expected optimism of the winner's dev score, in points
        "expected_selection_bias": selection_bias(values, examples) if in_range else None,
        "fresh_seeds": [run.seed for run in fresh],
        "dev": _spread([run.metrics["dev"][run.metric] for run in fresh]),
        "test": _spread([run.metrics["test"][run.metric] for run in fresh]),
        "runs": [run.run_id for run in fresh],
    }


def _spread(values: Sequence[float]) -> dict[str, Any]:
    spread = statistics.stdev(values) if len(values) > 1 else None
    return {"mean": statistics.fmean(values), "sd": spread, "values": list(values)}
