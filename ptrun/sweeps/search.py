"""A search: rounds of trials that dev scores, then the winner on fresh seeds, which test scores."""

import errno
import json
import logging
import math
import statistics
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import IntervalSweep, Override, RangeSweep
from hydra.errors import HydraException
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock
from optuna.trial import FrozenTrial, TrialState

from ptrun.config.compose import loosen
from ptrun.config.explain import composed, explain
from ptrun.config.schema import On, SweepConfig
from ptrun.errors import UserError, visible
from ptrun.files import below, read_bytes, write_text
from ptrun.folder import digest, result
from ptrun.folder.digest import is_number
from ptrun.metrics import selection_bias
from ptrun.sweeps.job import Job
from ptrun.sweeps.sweep import do, options_of
from ptrun.types import RunResult

_LOG = logging.getLogger(__name__)


# The searched ranges of a command line, in Hydra's grammar, as Optuna's distributions.

_OF_THE_SEARCH = ("seed", "name", "outputs", "trial", "rerun", "keep", "tracking")


@dataclass(frozen=True)
class Space:
    """What is searched, by key, and the overrides of all trials."""

    ranges: dict[str, BaseDistribution]
    fixed: tuple[str, ...]

    @property
    def grid(self) -> dict[str, list[Any]]:
        """The values of each key.

        Raises:
            UserError: a key has infinitely many.
        """
        return {key: _values(key, range_) for key, range_ in self.ranges.items()}

    @property
    def size(self) -> float:
        """The number of combinations."""
        endless = any(isinstance(own, FloatDistribution) for own in self.ranges.values())
        return math.inf if endless else math.prod(map(len, self.grid.values()))


def space(overrides: Sequence[str]) -> Space:
    """Return what a command line searches.

    Raises:
        UserError: a range is wrong, nothing is searched, or the search itself decides a key.
    """
    try:
        read = OverridesParser.create().parse_overrides([loosen(o) for o in overrides])
        ranges = {
            given.partition("=")[0].lstrip("+"): _distribution(own, given)
            for own, given in zip(read, overrides, strict=True)
            if own.is_sweep_override()
        }
    except HydraException as error:
        raise explain(error, overrides) from error
    if not ranges:
        raise UserError(
            "search: no key has a range. Type one, such as train.lr='tag(log,interval(1e-4,1e-1))' "
            "or method.length=5,10,20."
        )
    if wrong := [key for key in ranges if key.split(".")[0] in _OF_THE_SEARCH]:
        raise UserError(
            f"search {wrong[0]}: one value only; --seeds N are the seeds of the winner."
        )
    searched = tuple(
        o for o, own in zip(overrides, read, strict=True) if not own.is_sweep_override()
    )
    return Space(ranges, searched)


def _distribution(own: Override, given: str) -> BaseDistribution:
    value: Any = own.value()
    if isinstance(value, IntervalSweep):
        log, whole = "log" in value.tags, isinstance(value.start, int)
        kind: Any = IntDistribution if whole and isinstance(value.end, int) else FloatDistribution
        try:
            return kind(value.start, value.end, log=log)  # type: ignore[no-any-return]
        except ValueError as error:
            raise UserError(f"{given}: {error}") from error
    if isinstance(value, RangeSweep) and all(
        isinstance(one, int) for one in (value.start, value.stop, value.step)
    ):
        values = range(value.start, value.stop, value.step)  # type: ignore[arg-type]
        if not values:
            raise UserError(f"{given}: the range is empty.")
        return IntDistribution(min(values), max(values), step=abs(int(value.step)))
    return CategoricalDistribution(list(dict.fromkeys(own.sweep_string_iterator())))


def _values(key: str, range_: BaseDistribution) -> list[Any]:
    if isinstance(range_, CategoricalDistribution):
        return list(range_.choices)
    if isinstance(range_, IntDistribution):
        return list(range(range_.low, range_.high + 1, range_.step))
    raise UserError(
        f"search {key}: --sampler grid needs a list or a range of integers, not an interval."
    )


# The study of a search: Optuna's journal, in the folder of its runs.
#
# Trials are proposed in rounds. A proposal is a function of the seed, its number and the trials of
# earlier rounds, so a search that was killed goes on with the same proposals.

STUDY_FILE = "study.journal"
_STARTUP = 5  # complete trials before others are abandoned, as in Optuna's MedianPruner
_SEED_STEP = 100_003  # keeps the seeds of the proposals of two searches apart
_FLOORS = "floors"
_DAMAGES = (ValueError, TypeError, KeyError, AttributeError, IndexError, AssertionError)
_ENDED = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)


class Study:
    """Proposes trials and remembers their results.

    Args:
        folder: gets the journal.
        space: what is searched.
        sampler: tpe, random or grid.
        seed: of the proposals.
        asked: all that decides the proposals; a study goes on with the same only.

    Raises:
        UserError: the folder has a study of something else.
    """

    def __init__(self, folder: Path, space: Space, sampler: str, seed: int, asked: dict[str, Any]):
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        folder.mkdir(parents=True, exist_ok=True)
        self.space, self.sampler, self.seed, self.file = space, sampler, seed, folder / STUDY_FILE
        try:
            self._open()
        except _DAMAGES as error:
            set_aside(self.file, error)
            self._open()
        self._check(json.loads(json.dumps(asked)))

    def _open(self) -> None:
        """Read the journal: Optuna replays the operations in it.

        Raises:
            Exception: one of `_DAMAGES`: these are not the operations of such a study.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Optuna calls the journal experimental
            storage = JournalStorage(StudyJournal(self.file))
            self.study = optuna.create_study(
                study_name="search", storage=storage, direction="maximize", load_if_exists=True
            )
        if not isinstance(self.study.user_attrs.get("asked", {}), dict):
            raise ValueError("what was asked is no object")
        for trial in self.trials:
            self._check_trial(trial)

    def _check_trial(self, trial: FrozenTrial) -> None:
        """Raise ValueError if floors, which become an override, or scores are no numbers."""
        floors = trial.user_attrs.get(_FLOORS, {})
        if not all(is_number(floor) and step.isdecimal() for step, floor in floors.items()):
            raise ValueError(f"trial {trial.number} has floors {floors!r}")
        values = [*(trial.values or ()), *trial.intermediate_values.values()]
        if not all(type(value) in (int, float) for value in values):
            raise ValueError(f"trial {trial.number} has a score that is no number")

    def _check(self, asked: dict[str, Any]) -> None:
        before = self.study.user_attrs.get("asked")
        if before is None:
            self.study.set_user_attr("asked", asked)
            return
        other = [key for key in asked if asked[key] != before.get(key)]
        if other:
            raise UserError(
                f"{self.file}: a search with another {other[0]} ({before.get(other[0])}). Type "
                "name=NAME for a new search."
            )

    @property
    def trials(self) -> list[FrozenTrial]:
        """The trials, in order of their numbers."""
        return self.study.get_trials(deepcopy=False)

    @property
    def ended(self) -> list[FrozenTrial]:
        """The trials that have a result, were abandoned, or failed."""
        return [trial for trial in self.trials if trial.state in _ENDED]

    def round(self, size: int, total: int) -> list[FrozenTrial]:
        """Return the trials of the next round without a result, asking for those that are missing.

        Rounds have `size` trials, and all together `total`.
        """
        trials = self.trials
        left = [trial.number for trial in trials if trial.state not in _ENDED]
        first = (min(left) if left else len(trials)) // size * size
        floors = self.floors()
        for number in range(len(trials), min(total, first + size)):
            self._ask(number, floors)
        for trial in self.trials[first : first + size]:
            if trial.state not in _ENDED and trial.params.keys() != self.space.ranges.keys():
                self._complete(trial)
        own = self.trials[first : first + size]
        return [trial for trial in own if trial.state not in _ENDED]

    def _complete(self, trial: FrozenTrial) -> None:
        """Propose what is missing of a trial that was killed while it was proposed."""
        self.study.sampler = self._sampler(trial.number)
        live = optuna.trial.Trial(self.study, trial._trial_id)
        for key, range_ in self.space.ranges.items():
            if isinstance(range_, FloatDistribution):
                live.suggest_float(key, range_.low, range_.high, log=range_.log)
            elif isinstance(range_, IntDistribution):
                low, high, step = range_.low, range_.high, range_.step
                live.suggest_int(key, low, high, step=step, log=range_.log)
            elif isinstance(range_, CategoricalDistribution):
                live.suggest_categorical(key, range_.choices)
        self.study.sampler = optuna.samplers.RandomSampler()

    def _ask(self, number: int, floors: dict[int, float]) -> None:
        self.study.sampler = self._sampler(number)
        asked = self.study.ask(self.space.ranges)
        self.study.sampler = optuna.samplers.RandomSampler()  # a grid's would end the study itself
        asked.set_user_attr(_FLOORS, {str(step): value for step, value in floors.items()})

    def _sampler(self, number: int) -> optuna.samplers.BaseSampler:
        """Return the sampler of one proposal; it does not remember others."""
        seed = (self.seed * _SEED_STEP + number) % 2**32
        if self.sampler == "grid":
            return optuna.samplers.GridSampler(self.space.grid, seed=self.seed)
        if self.sampler == "random":
            return optuna.samplers.RandomSampler(seed=seed)
        return optuna.samplers.TPESampler(seed=seed)

    def overrides(self, trial: FrozenTrial) -> list[str]:
        """Return the overrides of a trial.

        One that was killed while it was proposed has none; no trial of its round has a result yet.
        """
        floors = trial.user_attrs.get(_FLOORS)
        return [*self.chosen(trial), f"trial={_text(self.floors() if floors is None else floors)}"]

    def chosen(self, trial: FrozenTrial) -> list[str]:
        """Return the overrides of the searched keys: a journal adds no other key, and no value.

        Raises:
            UserError: a value lies outside its range.
        """
        for key, range_ in self.space.ranges.items():
            value = trial.params.get(key)
            if key not in trial.params or not range_._contains(range_.to_internal_repr(value)):
                raise UserError(
                    f"{self.file}: damaged (trial {trial.number} has {key}={visible(str(value))}). "
                    "Delete it to search again."
                )
        return [f"{key}={trial.params[key]}" for key in self.space.ranges]

    def floors(self) -> dict[int, float]:
        """Return, by step, the median of the complete trials' dev scores at that step.

        A trial whose best score until then is lower is abandoned: the rule of Optuna's
        `MedianPruner`, known before a round starts, so that it does not depend on timing.
        """
        complete = [t.intermediate_values for t in self.trials if t.state is TrialState.COMPLETE]
        if len(complete) < _STARTUP:
            return {}
        steps = set.intersection(*(set(values) for values in complete))
        return {step: statistics.median(own[step] for own in complete) for step in sorted(steps)}

    def tell(
        self, trial: FrozenTrial, value: float | None, curve: Sequence[tuple[int, float]], *,
        abandoned: bool = False,
    ) -> None:  # fmt: skip
        """Record the dev score of a trial and its evaluations; None is a failure."""
        if value is None:
            self.study.tell(trial.number, state=TrialState.FAIL)
            return
        live = optuna.trial.Trial(self.study, trial._trial_id)
        for step, score in curve:
            live.report(score, step)
        if abandoned:
            self.study.tell(trial.number, state=TrialState.PRUNED)
        else:
            self.study.tell(trial.number, value)

    def winner(self) -> FrozenTrial | None:
        """Return the complete trial with the highest dev score, the first of equals."""
        complete = [
            t for t in self.trials if t.state is TrialState.COMPLETE and t.value is not None
        ]
        return max(complete, key=lambda trial: trial.value or 0.0, default=None)


def _text(floors: Mapping[Any, float]) -> str:
    return "{" + ",".join(f"{step}:{value!r}" for step, value in floors.items()) + "}"


SEARCH_FILE = "search.json"
TRIALS = "trials"
"""The folder of the trials, below that of the search."""


@dataclass(frozen=True)
class SearchOptions:
    """What was typed: overrides, trials, those of a round, seeds of the winner, the sampler."""

    overrides: tuple[str, ...]
    trials: int
    together: int
    seeds: int
    sampler: str


def search(asked: SearchOptions) -> dict[str, Any]:
    """Do a search, or what is left of it, and return its report.

    Raises:
        UserError: a range or an option is wrong, or no trial has a result.
    """
    own = space(asked.overrides)
    base = composed(own.fixed)
    _check(base.sweep)
    folder = below(base.outputs, base.name)
    sampler, total = asked.sampler, asked.trials
    if sampler == "grid" or own.size <= total:  # each combination once: a second run is the same
        sampler, total = "grid", math.prod(map(len, own.grid.values()))
    study = Study(folder, own, sampler, base.seed, _decisive(asked))
    while len(study.ended) < total:
        trials = study.round(asked.together, total)
        _do(study, trials, own, base.name)
    best = study.winner()
    if best is None:
        raise UserError(f"search: none of {total} trials has a result; see the messages above.")
    report = _report(study, best, _fresh(study.chosen(best), own, base.seed, asked.seeds))
    result.write_json(folder / SEARCH_FILE, report)
    return report


def _check(options: SweepConfig) -> None:
    if options.dry_run or options.shard:
        raise UserError(
            "search: leave out sweep.dry_run and sweep.shard; a round needs all trials."
        )
    if options.on is On.slurm and not options.wait:
        raise UserError("search: a round needs its trials; type sweep.wait=true too.")


def _decisive(asked: SearchOptions) -> dict[str, Any]:
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
    curve = [(row["step"], row[done.metric]) for row in ranked if done.metric in row]
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
    values = {  # of each combination once: the same run cannot be lucky twice
        tuple(t.params.items()): t.value
        for t in study.trials
        if t.state is TrialState.COMPLETE and t.value is not None
    }
    return {
        "metric": first.metric,
        "winner": {"trial": best.number, **best.params},
        "candidates": len(study.ended),
        "abandoned": sum(trial.state is TrialState.PRUNED for trial in study.trials),
        "failed": sum(trial.state is TrialState.FAIL for trial in study.trials),
        "dev_of_the_winner_in_the_search": best.value,
        "expected_selection_bias": _bias(list(values.values()), first),
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


# The journal of a study: Optuna's, with a checksum in each line.
#
# Optuna reads a damaged journal as another study, or not at all. So a study is opened behind a
# check.

_ASIDE = "~"  # ends the name of a damaged journal


class StudyJournal(JournalFileBackend):
    """A journal whose file was checked; a damaged one is set aside, and an empty one begins.

    Trials are proposed as before, and finished runs are not done again: so it is made again.

    Args:
        file: the journal, which need not exist.

    Raises:
        OSError: a link is there; it could lead to any file.
    """

    def __init__(self, file: Path):
        if file.is_symlink():
            raise OSError(errno.EXDEV, "a link in place of the journal", str(file))
        lock = JournalFileSymlinkLock(str(file))
        if file.exists():
            lock.acquire()
            try:
                _check_lines(file)
            finally:
                lock.release()
        super().__init__(str(file), lock)

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Append operations."""
        super().append_logs([json.loads(digest.line(log)) for log in logs])


def _check_lines(file: Path) -> None:
    """Cut a last line that a killed process left, and set a damaged file aside."""
    whole, _, rest = read_bytes(file).rpartition(b"\n")
    try:
        for line in whole.decode().split("\n") if whole else ():
            digest.row(line)
    except ValueError as error:
        set_aside(file, error)
    else:
        if rest:
            write_text(file, f"{whole.decode()}\n" if whole else "")


def set_aside(file: Path, error: Exception) -> None:
    """Rename a damaged journal, and say so."""
    reason = visible(str(error).partition("\n")[0])[:200]
    _LOG.warning("%s: damaged (%s); it is made again", file, reason)
    file.replace(file.with_name(file.name + _ASIDE))
