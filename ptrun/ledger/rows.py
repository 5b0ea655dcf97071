"""The rows of the ledger: every printed number beside our runs, with a verdict or a reason.

The runs of a cell lie in `<outputs>/<paper>/<table>/<cell>/`. Runs of searched hyper-parameters
lie there too; dev selects among them. Only runs that have what the cell requests count; the others
are its variants, which are listed and never compared.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Literal

from ptrun.errors import UserError
from ptrun.ledger.aggregate import mean_std
from ptrun.ledger.cell_runs import CellRuns, cell_runs
from ptrun.ledger.cells import grouped
from ptrun.ledger.experiment import GRID, Cell, Experiment, load
from ptrun.ledger.requested import Requests
from ptrun.ledger.statistics import CHOSEN, Interval, Verdict, interval, statistic_of, verdict
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


@dataclass(frozen=True)
class Variant:
    """Finished runs in a cell's folder that are not what it requests.

    Args:
        differs: the settings that differ, such as `backbone=pocket_bert`.
        scores: the reported metric by seed.
    """

    differs: str
    scores: Mapping[int, float]


@dataclass(frozen=True)
class Row:
    """One printed number and ours.

    Args:
        experiment, cell: the printed number.
        paper, honest: our runs under each protocol, or None.
        gap: the difference under the paper's protocol, else under the honest one.
        verdict: `within`, `above`, `below`, `not final`, `not comparable` or `not run`.
        why: the reason of the last three; for a cell that can be run, its command.
        variants: runs that do not count.
    """

    experiment: Experiment
    cell: Cell
    paper: Ours | None
    honest: Ours | None
    gap: Interval | None
    verdict: Verdict
    why: str | None
    variants: Sequence[Variant] = ()


def rows(experiment: Experiment, outputs: Path) -> list[Row]:
    """Return a row for every printed number of an experiment."""
    cells, requests = experiment.cells, Requests(outputs)
    found = {cell.key: cell_runs(experiment, cell, outputs, requests) for cell in cells}
    requests.save()
    own = [_by_protocol(experiment, cell, found[cell.key].runs) for cell in cells]
    means = _means_elsewhere(experiment, outputs)
    return [
        _row(
            experiment,
            cell,
            means.get((cell.key, cell.metric)) or _own_or_mean(experiment, index, own),
            found[cell.key],
        )
        for index, cell in enumerate(cells)
    ]


def _by_protocol(experiment: Experiment, cell: Cell, runs: Sequence[RunResult]) -> ByProtocol:
    read = _over_grid if experiment.mean_over(cell) == GRID else _ours
    return {
        protocol: read(experiment, cell, [r for r in runs if r.names.get("protocol") == protocol])
        for protocol in PROTOCOLS
    }


def _over_grid(experiment: Experiment, cell: Cell, runs: Sequence[RunResult]) -> Ours | None:
    """Return the mean over all configurations of a cell's grid, or None if one was not run."""
    groups = grouped(runs, lambda run: run.group)
    if len(groups) < math.prod(map(len, experiment.searched(cell).values())):
        return None
    mean = _mean([_ours(experiment, cell, own) for own in groups.values()], list(groups))
    return mean and replace(mean, searched=1, planned=1)


def _means_elsewhere(experiment: Experiment, outputs: Path) -> dict[tuple[str, str], ByProtocol]:
    """Return the cells that repeat a mean of another table, by key and metric."""
    places = [(cell, *experiment.home(cell)) for cell in experiment.cells]
    found: dict[tuple[str, str], ByProtocol] = {}
    for name in {home for _, home, _ in places} - {experiment.name}:
        other = load(name)
        wanted = {key for _, home, key in places if home == name}
        if not any(other.mean_over(c) for c in other.cells if c.key in wanted):
            continue
        there = {(r.cell.key, r.cell.metric): r for r in rows(other, outputs)}
        for cell, home, key in places:
            row = there.get((key, cell.metric)) if home == name else None
            if row and other.mean_over(row.cell):
                found[cell.key, cell.metric] = {"paper": row.paper, "honest": row.honest}
    return found


def _own_or_mean(experiment: Experiment, index: int, own: Sequence[ByProtocol]) -> ByProtocol:
    """Return the runs of a cell, or the mean of other cells."""
    cell = experiment.cells[index]
    axis = experiment.mean_over(cell)
    if axis in (None, GRID):
        return own[index]
    parts = [i for i, c in enumerate(experiment.cells) if _part_of(experiment, c, cell, axis)]
    places = [experiment.cells[i].at[axis] for i in parts]
    return {p: _mean([own[i][p] for i in parts], places) for p in PROTOCOLS}


def _part_of(experiment: Experiment, cell: Cell, mean: Cell, axis: str) -> bool:
    """Return whether a mean over an axis includes a cell."""
    same = all(cell.at[key] == place for key, place in mean.at.items() if key != axis)
    return same and experiment.mean_over(cell) in (None, GRID)


def _mean(parts: Sequence[Ours | None], places: Sequence[str]) -> Ours | None:
    """Return the mean of cells by seed: first over the metrics of a place, then over places."""
    ours = [part for part in parts if part is not None]
    if not ours or len(ours) < len(parts):
        return None
    seeds = sorted(set.intersection(*(set(own.scores) for own in ours)))
    if not seeds:
        return None
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
        searched=min(ours, key=_done).searched,
        planned=min(ours, key=_done).planned,
        value=statistics.fmean(scores.values()),
        learned=max(own.learned for own in ours),
        hours=0.0,
        history={},
        ddof=ours[0].ddof,
    )


def _done(ours: Ours) -> float:
    """Return the share of the planned configurations that were run."""
    return ours.searched / ours.planned


def _row(experiment: Experiment, cell: Cell, ours: ByProtocol, found: CellRuns) -> Row:
    best = ours["paper"] or ours["honest"]
    gap = _gap(experiment, cell, best) if best else None
    judged: Verdict
    why: str | None
    if best and gap and _done(best) < 1:
        so_far = f"{best.searched} of {best.planned} configurations"
        judged, why = "not final", f"{verdict(gap)} with {so_far}; dev selects among all"
    elif best:
        judged = verdict(gap)
        why = None if gap else _incomparable(cell, best, len(experiment.seeds))
    elif failed := [run for run in found.runs if run.status != "finished"]:
        judged, why = "not comparable", f"all {len(failed)} runs failed: {failed[0].reason}"
    else:
        home, key = experiment.home(cell)
        command = f"ptrun experiment={home} cell={key}"
        judged, why = "not run", experiment.reason(cell) or command
    variants = [_variant(experiment, cell, *item) for item in found.variants.items()]
    return Row(experiment, cell, ours["paper"], ours["honest"], gap, judged, why, variants)


def _variant(
    experiment: Experiment, cell: Cell, differs: str, runs: Sequence[RunResult]
) -> Variant:
    """Return runs that do not count; those without the reported metric have no score."""
    metric = experiment.metrics.get(cell.metric)
    scores = {run.seed: _number(run, metric or run.metric) for run in runs}
    return Variant(differs, {seed: score for seed, score in scores.items() if score is not None})


def _gap(experiment: Experiment, cell: Cell, ours: Ours) -> Interval | None:
    seeds, scores = len(experiment.seeds), list(ours.scores.values())
    std = experiment.sample_std(cell)
    if cell.number is None or (experiment.statistic in CHOSEN and len(scores) != seeds):
        return None
    unit = 10.0 ** Decimal(repr(cell.value)).as_tuple().exponent  # type: ignore[operator]
    return interval(scores, experiment.statistic, cell.number, std, seeds, unit)


def _incomparable(cell: Cell, ours: Ours, seeds: int) -> str:
    if cell.number is None:
        return "the paper plots this point without printing its number"
    if len(ours.scores) == 1:
        return "1 seed: its spread is unknown"
    return f"{len(ours.scores)} seeds instead of {seeds}: the best and worst depend on the number"


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
        planned=max(len(groups), math.prod(map(len, experiment.searched(cell).values()))),
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
    score = _number(run, metric)
    if score is None:
        name = metric if "." in metric else f"test.{metric}"
        raise UserError(f"{cell.key}: run {run.run_id} has no {name}, which the table reports.")
    return score


def _number(run: RunResult, metric: str) -> float | None:
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
