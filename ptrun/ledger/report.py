"""A table of results: mean, standard deviation and number of seeds for each cell.

ptrun report outputs
ptrun report outputs --over method.pattern    # mean and std over patterns, and the best on dev
ptrun report outputs --best 3                 # DPT's rule: the mean of the best 3 of 10 seeds
ptrun report outputs --vote                   # and the score of the seeds' majority
"""

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from ptrun.errors import UserError
from ptrun.folder import result
from ptrun.folder.scan import runs
from ptrun.ledger.aggregate import best_on_dev, mean_of_best, mean_std, near_best
from ptrun.ledger.cells import NAMES, Cell, Merged, cells, merged
from ptrun.ledger.vote import vote as vote_of

_LOG = logging.getLogger(__name__)
_COLUMNS = ("dev", "test", "n", "failed", "learned")
_FOLDED = ("best on dev", "tests by seed")
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
) -> Table:
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
    if best is not None and (best < 1 or over is not None):
        raise UserError(f"report --best {best}: use 1 or more, and leave --over out.")
    if not root.is_dir():
        raise UserError(f"report {root}: no such folder; results are usually below `outputs`.")
    every, damaged = result.read_all(root)
    results = [own for own in every if own.config.get("trial") is None]
    if not results:
        raise UserError(
            "\n".join([f"report {root}: no result.json or failure.json below it.", *damaged])
        )
    for message in damaged:
        _LOG.warning("not counted: %s", message)
    if over is not None:
        rows = [_merged_row(row) for row in merged(results, over)]
        return _table(root, (*_COLUMNS, "best on dev"), rows, _OVER.format(key=over))
    found = cells(results)
    if best is not None:
        columns = (*_COLUMNS, f"best {best}", "min", "within 2", "tests by seed")
        rows = [_row(cell) + _seeds(cell, best) for cell in found]
        return _table(root, columns, rows, _BEST.format(keep=best))
    if vote:
        return _voted(root, found)
    caption = "\n".join([_SEEDS, *_unfinished(root), *_missing_seeds(found)])
    return _table(root, _COLUMNS, [_row(cell) for cell in found], caption)


def _unfinished(root: Path) -> list[str]:
    """Return a line about runs that have started and not ended."""
    counts = Counter(own.state.kind for own in runs(root))
    left = [f"{counts[kind]} {kind}" for kind in ("running", "interrupted") if counts[kind]]
    return [f"not in the table: {', '.join(left)} (ptrun status {root})"] if left else []


def _missing_seeds(found: Sequence[Cell]) -> Iterator[str]:
    """Yield a line for each cell that lacks seeds which another one of its task has."""
    for cell in found:
        alike = [other for other in found if _where(other) == _where(cell)]
        seeds = sorted({run.seed for other in alike for run in other.runs})
        done = {run.seed for run in cell.runs if run.status == "finished"}
        if lacking := [str(seed) for seed in seeds if seed not in done]:
            name = " ".join(part for part in (*cell.names, cell.differs) if part)
            yield f"missing seeds: {', '.join(lacking)} of {name}"


def _where(cell: Cell) -> dict[str, str]:
    """Return task, setting and protocol of a cell."""
    names = dict(zip(NAMES, cell.names, strict=True))
    return {key: names[key] for key in ("task", "setting", "protocol")}


def spread(values: Sequence[float]) -> str:
    """Return `mean ± std` (sample standard deviation, ddof 1); one value has no deviation."""
    if not values:
        return "-"
    found = mean_std(values)
    return f"{found.mean:.2f}" if found.std is None else f"{found.mean:.2f} ± {found.std:.2f}"


def _voted(root: Path, found: Sequence[Cell]) -> Table:
    """Return the table with votes; its caption says why some cells have none."""
    folders = {folder.name: folder for folder in result.run_folders(root)}
    votes = [vote_of(cell.runs, folders) for cell in found]
    scores = ["-" if vote.score is None else f"{vote.score:.2f}" for vote in votes]
    rows = [[*_row(cell), score] for cell, score in zip(found, scores, strict=True)]
    reasons = dict.fromkeys(f"no vote: {vote.reason}" for vote in votes if vote.reason)
    return _table(root, (*_COLUMNS, "vote"), rows, "\n".join([_SEEDS, _VOTE, *reasons]))


def _table(
    root: Path, columns: Sequence[str], rows: Sequence[Sequence[str]], caption: str
) -> Table:
    shown = Table(
        title=escape(str(root)),
        title_justify="left",
        caption=escape(caption),
        caption_justify="left",
    )
    for name in (*NAMES, "differs in", "metric"):
        shown.add_column(name, overflow="fold")
    for name in columns:
        shown.add_column(name, justify="right", no_wrap=name not in _FOLDED, overflow="fold")
    for row in rows:
        shown.add_row(*map(escape, row))
    return shown


def _row(cell: Cell) -> list[str]:
    return _columns(cell, [cell], cell.values("dev"), cell.values("test"))


def _merged_row(row: Merged) -> list[str]:
    found = list(row.cells.values())
    return [*_columns(row, found, _means(found, "dev"), _means(found, "test")), _best(row)]


def _columns(
    row: Cell | Merged, found: Sequence[Cell], devs: Sequence[float], tests: Sequence[float]
) -> list[str]:
    learned = {run.learned_parameters["total"] for cell in found for run in cell.runs}
    return [
        *row.names,
        row.differs,
        found[0].runs[0].metric,
        spread(devs),
        spread(tests),
        str(len(tests)),
        str(sum(cell.failed for cell in found) or ""),
        " to ".join(f"{count:,}" for count in sorted({min(learned), max(learned)})),
    ]


def _means(found: Sequence[Cell], split: str) -> list[float]:
    """Return the mean of each cell that has scores on a split."""
    return [mean_std(values).mean for cell in found if (values := cell.values(split))]


def _seeds(cell: Cell, best: int) -> list[str]:
    """Return the columns of `best=`; the scores stand in the order of seeds.

    The mean of the best is `-` if there are fewer scores.
    """
    runs = sorted(cell.runs, key=lambda run: run.seed)
    tests = replace(cell, runs=runs).values("test")
    if not tests:
        return ["-"] * 4
    mean = f"{mean_of_best(tests, keep=best):.2f}" if len(tests) >= best else "-"
    scores = " ".join(f"{score:.2f}" for score in tests)
    return [mean, f"{min(tests):.2f}", f"{near_best(tests)} of {len(tests)}", scores]


def _best(row: Merged) -> str:
    """Return the test score of the best value on dev and that value; `-` without dev scores."""
    names = [name for name, cell in row.cells.items() if cell.values("dev")]
    if not names:
        return "-"
    found = [row.cells[name] for name in names]
    devs, tests = _means(found, "dev"), _means(found, "test")
    best = [name for name, dev in zip(names, devs, strict=True) if dev == max(devs)]
    return f"{best_on_dev(devs, tests):.2f} ({', '.join(best)})"
