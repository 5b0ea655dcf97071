"""Our runs of a cell under each protocol: what dev selects of them, and means over cells."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ptrun.errors import UserError
from ptrun.ledger.aggregate import mean_std
from ptrun.ledger.cells import grouped
from ptrun.ledger.experiment import GRID, Cell, Experiment
from ptrun.ledger.statistics import statistic_of
from ptrun.types import RunResult

PROTOCOLS = ("paper", "honest")


@dataclass(frozen=True)
class Ours:
    """The runs of a cell under one protocol, with the hyper-parameters that dev selected.

    Args:
        scores: the reported metric by seed.
        missing: seeds of the experiment without a finished run.
        failed: seeds whose run failed.
        searched, planned: the number of configurations that dev selected from, and of those that
            the table searches.
        value: the experiment's statistic of the scores.
        learned: learned parameters.
        hours: wall-clock hours of all runs.
        history: dev scores by step, for each seed.
        ddof: of the table; the deviation divides by n - ddof.
    """

    scores: Mapping[int, float]
    missing: Sequence[int]
    failed: Sequence[int]
    searched: int
    planned: int
    value: float
    learned: int
    hours: float
    history: Mapping[int, Sequence[tuple[int, float]]]
    ddof: Literal[0, 1] = 1

    @property
    def std(self) -> float | None:
        """The standard deviation over seeds, as the table's; None for one seed."""
        several = len(self.scores) > 1
        return mean_std([*self.scores.values()], ddof=self.ddof).std if several else None


ByProtocol = Mapping[str, Ours | None]


def by_protocol(experiment: Experiment, cell: Cell, runs: Sequence[RunResult]) -> ByProtocol:
    """Return the runs of a cell under each protocol."""
    read = _over_grid if experiment.mean_over(cell) == GRID else _ours
    return {
        protocol: read(experiment, cell, [r for r in runs if r.names.get("protocol") == protocol])
        for protocol in PROTOCOLS
    }


def _over_grid(experiment: Experiment, cell: Cell, runs: Sequence[RunResult]) -> Ours | None:
    """Return the mean over all configurations of a cell's grid, or None if one was not run."""
    groups = grouped(runs, lambda run: run.group)
    if len(groups) < experiment.configurations(cell):
        return None
    whole = mean([_ours(experiment, cell, own) for own in groups.values()], list(groups))
    return whole and replace(whole, searched=1, planned=1)


def mean(parts: Sequence[Ours | None], places: Sequence[str]) -> Ours | None:
    """Return the mean of cells by seed: first over the metrics of a place, then over places."""
    ours = [part for part in parts if part is not None]
    if not ours or len(ours) < len(parts):
        return None
    seeds = sorted(set.intersection(*(set(own.scores) for own in ours)))
    if not seeds:
        return None
    least = min(ours, key=lambda own: own.searched / own.planned)
    scores = {}
    for seed in seeds:
        by_place: dict[str, list[float]] = {}
        for own, place in zip(ours, places, strict=True):
            by_place.setdefault(place, []).append(own.scores[seed])
        scores[seed] = statistics.fmean(map(statistics.fmean, by_place.values()))
    return Ours(
        scores=scores,
        missing=sorted({seed for own in ours for seed in own.missing}),
        failed=sorted({seed for own in ours for seed in own.failed}),
        searched=least.searched,
        planned=least.planned,
        value=statistics.fmean(scores.values()),
        learned=max(own.learned for own in ours),
        hours=0.0,
        history={},
        ddof=ours[0].ddof,
    )


def _ours(experiment: Experiment, cell: Cell, runs: Sequence[RunResult]) -> Ours | None:
    """Return the configuration with the highest mean on dev over its seeds, the first of equals.

    Only configurations with the most finished seeds are compared, so a single seed of another
    configuration cannot win by chance.
    """
    groups = grouped(runs, lambda run: run.group)
    done = {name: [r for r in own if r.status == "finished"] for name, own in groups.items()}
    tried = [name for name, own in done.items() if own]
    if not tried:
        return None
    chosen = max(tried, key=lambda name: (len(done[name]), _on_dev(done[name])))
    metric = experiment.metrics.get(cell.metric) or done[chosen][0].metric
    scores = {run.seed: _score(cell, run, metric) for run in done[chosen]}
    complete = [own for own in done.values() if len(own) >= len(done[chosen])]
    return Ours(
        scores=dict(sorted(scores.items())),
        missing=[seed for seed in experiment.seeds if seed not in scores],
        failed=[run.seed for run in groups[chosen] if run.status != "finished"],
        searched=len(complete),
        planned=max(len(groups), experiment.configurations(cell)),
        value=statistic_of(experiment.statistic)(list(scores.values())),
        learned=done[chosen][0].learned_parameters["total"],
        hours=sum(run.manifest.get("seconds", 0.0) for run in runs) / 3600,
        history={run.seed: _history(run) for run in done[chosen]},
        ddof=experiment.ddof,
    )


def _score(cell: Cell, run: RunResult, metric: str) -> float:
    """Return the reported score of a run.

    Raises:
        UserError: the run has no such score.
    """
    score = number(run, metric)
    if score is None:
        name = metric if "." in metric else f"test.{metric}"
        raise UserError(f"{cell.key}: run {run.run_id} has no {name}, which the table reports.")
    return score


def number(run: RunResult, metric: str) -> float | None:
    """Return a run's `metric` on test, or `dev.metric` on dev; None if it has no finite one."""
    split, _, key = metric.rpartition(".")
    score = run.metrics.get(split or "test", {}).get(key)
    return float(score) if score is not None and math.isfinite(score) else None


def _on_dev(runs: Sequence[RunResult]) -> float:
    scores = (run.metrics.get("dev", {}).get(run.metric) for run in runs)
    finite = [score for score in scores if score is not None and math.isfinite(score)]
    return statistics.fmean(finite) if finite else float("-inf")


def _history(run: RunResult) -> list[tuple[int, float]]:
    history = [row for row in run.manifest.get("history", []) if run.metric in row]
    return [(row["step"], row[run.metric]) for row in history if math.isfinite(row[run.metric])]
