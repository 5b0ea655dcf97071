"""The ledger: every printed number beside what was run for it, and a verdict or the reason why not.

Runs of a cell lie in `<outputs>/<paper>/<table>/<cell>/`; those of searched hyper-parameters beside
each other, of which dev selects.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from ptrun.errors import UserError
from ptrun.ledger.experiment import Cell, Experiment, load
from ptrun.ledger.statistics import CHOSEN, Interval, Verdict, interval, statistic_of, verdict
from ptrun.run import result
from ptrun.types import RunResult

PROTOCOLS = ("paper", "honest")


@dataclass(frozen=True)
class Ours:
    """What was run for a cell under one protocol, with the hyper-parameters that dev selected.

    Args:
        scores: the reported metric by seed.
        missing: seeds of the experiment that no finished run has.
        failed: seeds whose run failed.
        searched: how many configurations dev selected from.
        value: the experiment's statistic of the scores.
        std: over seeds (n - 1); None of one.
        learned: learned parameters.
        hours: of all its runs, wall clock.
        history: dev scores by step, of each seed.
    """

    scores: Mapping[int, float]
    missing: Sequence[int]
    failed: Sequence[int]
    searched: int
    value: float
    std: float | None
    learned: int
    hours: float
    history: Mapping[int, Sequence[tuple[int, float]]]


@dataclass(frozen=True)
class Row:
    """One printed number and ours.

    Args:
        experiment, cell: which.
        paper, honest: what was run under each protocol; None where nothing was.
        gap: of the paper's protocol if it was run, else of the honest one.
        verdict: `within`, `above`, `below`, `not comparable` or `not run`.
        why: the reason of the last two; of a cell that could be run, the command that does.
    """

    experiment: Experiment
    cell: Cell
    paper: Ours | None
    honest: Ours | None
    gap: Interval | None
    verdict: Verdict
    why: str | None


def rows(experiment: Experiment, outputs: Path) -> list[Row]:
    """Return a row for every printed number of an experiment."""
    known: dict[str, list[RunResult]] = {}
    for cell in experiment.cells:
        if cell.key not in known:
            home, key = experiment.home(cell)
            folder = outputs / home / key
            known[cell.key] = result.read_all(folder) if folder.is_dir() else []
    cells = experiment.cells
    own = [_both(experiment, cell, known[cell.key]) for cell in cells]
    means = _means_elsewhere(experiment, outputs)
    found = [means.get((c.key, c.metric)) or _of(experiment, i, own) for i, c in enumerate(cells)]
    return [
        _row(experiment, cell, ours) if any(ours.values()) else _unrun(experiment, cell, known)
        for cell, ours in zip(cells, found, strict=True)
    ]


def command(experiment: Experiment, cell: Cell) -> str:
    """Return what is typed to run a cell."""
    home, key = experiment.home(cell)
    return f"ptrun experiment={home} cell={key}"


def _both(experiment: Experiment, cell: Cell, found: Sequence[RunResult]) -> dict[str, Ours | None]:
    """Return what was run for a cell, by protocol."""
    return {
        protocol: _ours(experiment, cell, [r for r in found if r.names.get("protocol") == protocol])
        for protocol in PROTOCOLS
    }


def _means_elsewhere(
    experiment: Experiment, outputs: Path
) -> dict[tuple[str, str], Mapping[str, Ours | None]]:
    """Return what the cells are that repeat a mean of another table, by key and metric."""
    places = [(cell, *experiment.home(cell)) for cell in experiment.cells]
    others = {name: load(name) for name in {home for _, home, _ in places} - {experiment.name}}
    found: dict[tuple[str, str], Mapping[str, Ours | None]] = {}
    for name, other in others.items():
        wanted = {key for _, home, key in places if home == name}
        if not any(other.mean_over(c) for c in other.cells if c.key in wanted):
            continue
        there = {(r.cell.key, r.cell.metric): r for r in rows(other, outputs)}
        for cell, home, key in places:
            row = there.get((key, cell.metric)) if home == name else None
            if row and other.mean_over(row.cell):
                found[cell.key, cell.metric] = {"paper": row.paper, "honest": row.honest}
    return found


def _of(
    experiment: Experiment, index: int, own: Sequence[Mapping[str, Ours | None]]
) -> Mapping[str, Ours | None]:
    """Return what was run for a cell, itself or, of a mean, its parts."""
    cell = experiment.cells[index]
    axis = experiment.mean_over(cell)
    if axis is None:
        return own[index]
    parts = [i for i, c in enumerate(experiment.cells) if _part_of(experiment, c, cell, axis)]
    cells = [experiment.cells[i] for i in parts]
    return {p: _mean([own[i][p] for i in parts], cells, axis) for p in PROTOCOLS}


def _part_of(experiment: Experiment, cell: Cell, mean: Cell, axis: str) -> bool:
    """Return whether a cell is one that a mean over an axis is taken of."""
    beside = {key: place for key, place in cell.at.items() if key != axis}
    same = beside == {key: place for key, place in mean.at.items() if key != axis}
    return same and experiment.mean_over(cell) is None


def _mean(parts: Sequence[Ours | None], cells: Sequence[Cell], axis: str) -> Ours | None:
    """Return the mean of cells by seed: of the metrics of one place first, then over places."""
    have = [own for own in parts if own is not None]
    if not have or len(have) < len(parts):
        return None
    seeds = sorted(set.intersection(*(set(own.scores) for own in have)))
    if not seeds:
        return None
    scores = {}
    for seed in seeds:
        places: dict[str, list[float]] = {}
        for own, cell in zip(have, cells, strict=True):
            places.setdefault(cell.at[axis], []).append(own.scores[seed])
        scores[seed] = statistics.fmean(statistics.fmean(values) for values in places.values())
    return Ours(
        scores=scores,
        missing=sorted({seed for own in have for seed in own.missing}),
        failed=sorted({seed for own in have for seed in own.failed}),
        searched=max(own.searched for own in have),
        value=statistics.fmean(scores.values()),
        std=statistics.stdev(scores.values()) if len(scores) > 1 else None,
        learned=max(own.learned for own in have),
        hours=0.0,
        history={},
    )


def _unrun(experiment: Experiment, cell: Cell, known: Mapping[str, Sequence[RunResult]]) -> Row:
    """Return the row of a cell that no run finished for: why not, or how the runs failed."""
    failed = [run for run in known[cell.key] if run.status != "finished"]
    if failed:
        why = f"all {len(failed)} runs failed: {failed[0].reason}"
        return Row(experiment, cell, None, None, None, "not comparable", why)
    why = experiment.reason(cell) or command(experiment, cell)
    return Row(experiment, cell, None, None, None, "not run", why)


def _row(experiment: Experiment, cell: Cell, ours: Mapping[str, Ours | None]) -> Row:
    best = ours["paper"] or ours["honest"]
    assert best is not None
    gap = None
    seeds, scores = len(experiment.seeds), list(best.scores.values())
    chosen = experiment.statistic in CHOSEN and len(scores) != seeds
    if cell.number is not None and not chosen:
        unit = 10.0 ** Decimal(repr(cell.value)).as_tuple().exponent  # type: ignore[operator]
        gap = interval(scores, experiment.statistic, cell.number, cell.std, seeds, unit)
    odd = None if gap else _incomparable(cell, best, seeds)
    return Row(experiment, cell, ours["paper"], ours["honest"], gap, verdict(gap), odd)


def _incomparable(cell: Cell, ours: Ours, seeds: int) -> str:
    if cell.number is None:
        return "the paper draws it and prints no number"
    if len(ours.scores) == 1:
        return "1 seed: its spread is not known"
    return f"{len(ours.scores)} seeds: best and worst depend on how many, the paper has {seeds}"


def _ours(experiment: Experiment, cell: Cell, found: Sequence[RunResult]) -> Ours | None:
    """Return the configuration whose seeds' mean on dev is highest, the first of equals.

    Only those with the most finished seeds are compared: one lucky seed, tried or not yet followed
    by the others, is no mean.
    """
    groups: dict[str, list[RunResult]] = {}
    for run in found:
        groups.setdefault(run.group, []).append(run)
    done = {name: [r for r in runs if r.status == "finished"] for name, runs in groups.items()}
    tried = [name for name, runs in done.items() if runs]
    if not tried:
        return None
    chosen = max(tried, key=lambda name: (len(done[name]), _on_dev(done[name])))
    metric = experiment.metrics.get(cell.metric) or done[chosen][0].metric
    scores = {run.seed: _score(cell, run, metric) for run in done[chosen]}
    spread = statistics.stdev(scores.values()) if len(scores) > 1 else None
    return Ours(
        scores=dict(sorted(scores.items())),
        missing=[seed for seed in experiment.seeds if seed not in scores],
        failed=[run.seed for run in groups[chosen] if run.status != "finished"],
        searched=len(groups),
        value=statistic_of(experiment.statistic)(list(scores.values())),
        std=spread,
        learned=done[chosen][0].learned_parameters["total"],
        hours=sum(run.manifest.get("seconds", 0.0) for run in found) / 3600,
        history={run.seed: _history(run) for run in done[chosen]},
    )


def _score(cell: Cell, run: RunResult, metric: str) -> float:
    """Return what a run scored.

    Raises:
        UserError: it has no such number.
    """
    part, _, key = metric.rpartition(".")
    score = run.metrics.get(part or "test", {}).get(key)
    if score is None or not math.isfinite(score):
        told = f"{part or 'test'}.{key}"
        raise UserError(f"{cell.key}: run {run.run_id} has no {told}, which the table reports.")
    return float(score)


def _on_dev(runs: Sequence[RunResult]) -> float:
    own = (run.metrics.get("dev", {}).get(run.metric) for run in runs)
    known = [score for score in own if score is not None and math.isfinite(score)]
    return statistics.fmean(known) if known else float("-inf")


def _history(run: RunResult) -> list[tuple[int, float]]:
    found = run.manifest.get("history", [])
    told = ((row["step"], row[run.metric]) for row in found if run.metric in row)
    return [(step, score) for step, score in told if math.isfinite(score)]
