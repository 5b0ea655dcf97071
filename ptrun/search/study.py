"""The study of a search: Optuna's journal, in the folder of its runs.

Trials are proposed in rounds. A proposal is a function of the seed, its number and the trials of
earlier rounds, so a search that was killed goes on with the same proposals.
"""

import json
import statistics
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import JournalStorage
from optuna.trial import FrozenTrial, TrialState

from ptrun.config.readable import visible
from ptrun.errors import UserError
from ptrun.folder.digest import is_number
from ptrun.search.journal import Journal, set_aside
from ptrun.search.space import Space

FILE = "study.journal"
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
        self.space, self.sampler, self.seed, self.file = space, sampler, seed, folder / FILE
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
            storage = JournalStorage(Journal(self.file))
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
