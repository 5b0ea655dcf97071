"""A table of results: mean, standard deviation and number of seeds for each cell.

ptrun report outputs
ptrun report outputs --over readout.pattern    # mean and std over patterns, and the best on dev
ptrun report outputs --best 3                 # DPT's rule: the mean of the best 3 of 10 seeds
ptrun report outputs --vote                   # and the score of the seeds' majority
"""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ptrun.drawing.results import Results
from ptrun.errors import UserError
from ptrun.folder import result
from ptrun.folder.scan import runs
from ptrun.ledger.aggregate import best_on_dev, mean_of_best, mean_std, near_best
from ptrun.ledger.cells import NAMES, Cell, Merged, cells, grouped, merged
from ptrun.ledger.vote import vote as vote_of
from ptrun.types import RunResult

_LOG = logging.getLogger(__name__)
_Row = tuple[dict[str, Any], dict[str, str]]
"""A row as plain values and as text."""
_SEEDS = "mean ± standard deviation over seeds (n - 1), without failed runs"
_VOTE = (
    "vote: the test score of the majority label over seeds, or of the mean number; the earliest "
    "seed breaks a tie.\nIDPG's tables print both and divide the deviation by n, not n - 1"
)
_OVER = (
    "mean ± standard deviation (n - 1) over n values of {key}, each the mean of its seeds;\n"
    "best on dev: the test score of the values with the highest dev score"
)
_BEST = (
    _SEEDS + "\nbest {keep}: the mean of the {keep} highest test scores (DPT); optimistic, because "
    "test selects;\nwithin 2: the number of scores at most 2 points below the highest"
)


def table(
    root: Path, over: str | None = None, *, best: int | None = None, vote: bool = False
) -> Results:
    """Return the table of all runs below a folder.

    Args:
        root: the folder.
        over: a key whose values are merged into one row.
        best: add the mean of this many of the highest test scores, the minimum, the number near
            the highest, and the scores of all seeds; not with `over`.
        vote: add the score of the seeds' vote; not with `over`.

    Raises:
        UserError: the folder is missing or has no result, or no result has the key.
    """
    if not root.is_dir():
        raise UserError(f"report {root}: no such folder; results are usually below `outputs`.")
    found, damaged = result.read_all(root)
    if not found:
        told = [f"report {root}: no result.json or failure.json below it.", *damaged]
        raise UserError("\n".join(told))
    for message in damaged:
        _LOG.warning("not counted: %s", message)
    shown = of_runs(found, str(root), over, best=best, vote=vote)
    if over is None and best is None and not vote:
        shown.notes[1:1] = _unfinished(root)
    return shown


def of_runs(
    runs: Mapping[Path, RunResult],
    title: str,
    over: str | None = None,
    *,
    best: int | None = None,
    vote: bool = False,
) -> Results:
    """Return the table of results by run folder; other arguments as in `table`.

    Raises:
        UserError: there is no result, or an option is wrong.
    """
    if best is not None and (best < 1 or over is not None):
        raise UserError(f"report --best {best}: use 1 or more, and leave --over out.")
    kept = {folder: own for folder, own in runs.items() if own.config.get("trial") is None}
    if not kept:
        raise UserError(f"report {title}: no result.json or failure.json below it.")
    kept = _once(kept)
    if over is not None:
        rows = [_merged_row(row) for row in merged(list(kept.values()), over)]
        return _results(title, rows, _OVER.format(key=over))
    found = cells(list(kept.values()))
    if best is not None:
        rows = [_joined(_row(cell), _seeds(cell, best)) for cell in found]
        return _results(title, rows, _BEST.format(keep=best))
    if vote:
        return _voted(title, found, {own.run_id: folder for folder, own in kept.items()})
    rows = [_row(cell) for cell in found]
    return _results(title, rows, "\n".join([_SEEDS, *_missing_seeds(found)]))


def _once(runs: Mapping[Path, RunResult]) -> dict[Path, RunResult]:
    """Return the runs without copies: one run below two names is one seed."""
    found: dict[tuple[str, int], Path] = {}
    for folder, own in runs.items():
        first = found.setdefault((own.run_id, own.seed), folder)
        if first != folder:
            _LOG.warning("%s is the run of %s; it is counted once", folder, first)
    return {folder: runs[folder] for folder in found.values()}


def _unfinished(root: Path) -> list[str]:
    """Return a line about runs that have started and not ended."""
    counts = Counter(own.state.kind for own in runs(root))
    left = [f"{counts[kind]} {kind}" for kind in ("running", "interrupted") if counts[kind]]
    return [f"not in the table: {', '.join(left)} (ptrun status {root})"] if left else []


def _missing_seeds(found: Sequence[Cell]) -> Iterator[str]:
    """Yield a line for each cell that lacks seeds which another one of its task has."""
    seeds = {
        where: sorted({run.seed for cell in alike for run in cell.runs})
        for where, alike in grouped(found, _where).items()
    }
    for cell in found:
        done = {run.seed for run in cell.runs if run.status == "finished"}
        if lacking := [str(seed) for seed in seeds[_where(cell)] if seed not in done]:
            name = " ".join(part for part in (*cell.names, cell.differs) if part)
            yield f"missing seeds: {', '.join(lacking)} of {name}"


def _where(cell: Cell) -> tuple[str, ...]:
    """Return task, setting and protocol of a cell."""
    names = dict(zip(NAMES, cell.names, strict=True))
    return names["task"], names["setting"], names["protocol"]


def spread(values: Sequence[float]) -> str:
    """Return `mean ± std` (sample standard deviation, ddof 1); one value has no deviation."""
    if not values:
        return "-"
    found = mean_std(values)
    return f"{found.mean:.2f}" if found.std is None else f"{found.mean:.2f} ± {found.std:.2f}"


def _voted(title: str, found: Sequence[Cell], folders: Mapping[str, Path]) -> Results:
    """Return the table with votes; its notes say why some cells have none."""
    votes = [vote_of(cell.runs, folders) for cell in found]
    scores = ["-" if vote.score is None else f"{vote.score:.2f}" for vote in votes]
    rows = [
        _joined(_row(cell), ({"vote": vote.score}, {"vote": text}))
        for cell, vote, text in zip(found, votes, scores, strict=True)
    ]
    reasons = dict.fromkeys(f"no vote: {vote.reason}" for vote in votes if vote.reason)
    return _results(title, rows, "\n".join([_SEEDS, _VOTE, *reasons]))


def _results(title: str, rows: Sequence[_Row], notes: str) -> Results:
    return Results(title, [own for own, _ in rows], [text for _, text in rows], notes.split("\n"))


def _joined(row: _Row, more: _Row) -> _Row:
    return {**row[0], **more[0]}, {**row[1], **more[1]}


def _row(cell: Cell) -> _Row:
    return _columns(cell, [cell], cell.values("dev"), cell.values("test"))


def _merged_row(row: Merged) -> _Row:
    found = list(row.cells.values())
    return _joined(_columns(row, found, _means(found, "dev"), _means(found, "test")), _best(row))


def _columns(
    row: Cell | Merged, found: Sequence[Cell], devs: Sequence[float], tests: Sequence[float]
) -> _Row:
    learned = {run.learned_parameters["total"] for cell in found for run in cell.runs}
    names, metric = dict(zip(NAMES, row.names, strict=True)), found[0].runs[0].metric
    failed = sum(cell.failed for cell in found)
    values: dict[str, Any] = {**names, "differs": row.differs, "metric": metric}
    values |= {**_mean("dev", devs), **_mean("test", tests), "n": len(tests), "failed": failed}
    texts = {**names, "differs in": row.differs, "metric": metric}
    texts |= {"dev": spread(devs), "test": spread(tests), "n": str(len(tests))}
    texts |= {"failed": str(failed or "")}
    counts = " to ".join(f"{count:,}" for count in sorted({min(learned), max(learned)}))
    return {**values, "learned": max(learned)}, {**texts, "learned": counts}


def _mean(name: str, scores: Sequence[float]) -> dict[str, float | None]:
    """Return mean and standard deviation; None where there is none."""
    if not scores:
        return {name: None, f"{name}_std": None}
    found = mean_std(scores)
    return {name: found.mean, f"{name}_std": found.std}


def _means(found: Sequence[Cell], split: str) -> list[float]:
    """Return the mean of each cell that has scores on a split."""
    return [mean_std(values).mean for cell in found if (values := cell.values(split))]


def _seeds(cell: Cell, best: int) -> _Row:
    """Return the columns of `best=`; the scores stand in the order of seeds.

    The mean of the best is unknown if there are fewer scores.
    """
    runs = sorted(cell.runs, key=lambda run: run.seed)
    tests = replace(cell, runs=runs).values("test")
    mean = mean_of_best(tests, keep=best) if len(tests) >= best else None
    near = near_best(tests) if tests else None
    least = min(tests, default=None)
    values = {f"best_{best}": mean, "min": least, "within_2": near, "tests": tests}
    texts = {
        f"best {best}": "-" if mean is None else f"{mean:.2f}",
        "min": "-" if least is None else f"{least:.2f}",
        "within 2": "-" if near is None else f"{near} of {len(tests)}",
        "tests by seed": " ".join(f"{score:.2f}" for score in tests) or "-",
    }
    return values, texts


def _best(row: Merged) -> _Row:
    """Return the test score of the best value on dev and that value; unknown without dev scores."""
    names = [name for name, cell in row.cells.items() if cell.values("dev")]
    if not names:
        return {"best_on_dev": None, "best_values": []}, {"best on dev": "-"}
    found = [row.cells[name] for name in names]
    devs, tests = _means(found, "dev"), _means(found, "test")
    best = [name for name, dev in zip(names, devs, strict=True) if dev == max(devs)]
    score = best_on_dev(devs, tests)
    text = f"{score:.2f} ({', '.join(best)})"
    return {"best_on_dev": score, "best_values": best}, {"best on dev": text}
