"""The rows of the ledger: every printed number beside our runs, with a verdict or a reason.

The runs of a cell lie in `<outputs>/<paper>/<table>/<cell>/`. Runs of searched hyper-parameters
lie there too; dev selects among them. Only runs that have what the cell requests count; the others
are its variants, which are listed and never compared.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from ptrun.ledger.cell_runs import CellRuns, cell_runs
from ptrun.ledger.experiment import GRID, Cell, Experiment, load
from ptrun.ledger.ours import PROTOCOLS, ByProtocol, Ours, by_protocol, mean, number
from ptrun.ledger.requested import Requests
from ptrun.ledger.statistics import CHOSEN, Interval, Verdict, interval, verdict
from ptrun.types import RunResult


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
    by_key = {cell.key: cell for cell in cells}  # several metrics share the runs of a key
    found = {key: cell_runs(experiment, cell, outputs, requests) for key, cell in by_key.items()}
    requests.save()
    own = [by_protocol(experiment, cell, found[cell.key].runs) for cell in cells]
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
    return {p: mean([own[i][p] for i in parts], places) for p in PROTOCOLS}


def _part_of(experiment: Experiment, cell: Cell, whole: Cell, axis: str) -> bool:
    """Return whether a mean over an axis includes a cell."""
    same = all(cell.at[key] == place for key, place in whole.at.items() if key != axis)
    return same and experiment.mean_over(cell) in (None, GRID)


def _row(experiment: Experiment, cell: Cell, ours: ByProtocol, found: CellRuns) -> Row:
    best = ours["paper"] or ours["honest"]
    gap = _gap(experiment, cell, best) if best else None
    judged: Verdict
    why: str | None
    if best and gap and best.searched < best.planned:
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
    scores = {run.seed: number(run, metric or run.metric) for run in runs}
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
