"""Result files to one table: mean, standard deviation and number of seeds for each cell.

ptrun report outputs
ptrun report outputs --over method.pattern    # mean and std over patterns, and the best on dev
ptrun report outputs --best 3                 # DPT's rule: the mean of the best 3 of 10 seeds
ptrun report outputs --vote                   # and the score of the seeds' majority
"""

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from ptrun.errors import UserError
from ptrun.ledger.aggregate import best_on_dev, mean_of_best, mean_std, near_best
from ptrun.ledger.cells import NAMES, Cell, Merged, cells, merged
from ptrun.ledger.vote import vote as together
from ptrun.run import result

_COLUMNS = ("dev", "test", "n", "failed", "learned")
_FOLDED = ("best on dev", "tests by seed")
_SEEDS = "mean ± standard deviation over seeds (n - 1); failed runs are not in the mean"
_VOTE = (
    "vote: the test score of the seeds' commonest label (a tie: the earliest seed's), of numbers "
    "their mean;\nIDPG's tables, which have both, divide the deviation by n, not n - 1"
)
_OVER = (
    "mean ± standard deviation (n - 1) over n values of {key}, each the mean of its seeds;\n"
    "best on dev: the test score of the values whose dev score is highest"
)
_BEST = (
    _SEEDS + "\nbest {keep}: the mean of the {keep} highest test scores (DPT), chosen on test, so\n"
    "optimistic; within 2: how many are at most 2 points below the highest"
)


def table(
    root: Path, over: str | None = None, *, best: int | None = None, vote: bool = False
) -> Table:
    """Return the table of all runs below a folder.

    Args:
        root: the folder.
        over: make one row of the values of this key.
        best: add the mean of so many of the highest test scores, the lowest, how many are near the
            highest, and all of them by seed; without `over`.
        vote: add the score of what the seeds of a cell answer together; without `over`.

    Raises:
        UserError: the folder is not there, or holds no result, or no result has the key.
    """
    if best is not None and (best < 1 or over is not None):
        raise UserError(f"report --best {best}: use 1 or more, and leave --over out.")
    if not root.is_dir():
        raise UserError(f"report {root}: no such folder; results are below `outputs`.")
    results = result.read_all(root)
    if not results:
        raise UserError(f"report {root}: no result.json or failure.json below it.")
    if best is not None:
        columns = (*_COLUMNS, f"best {best}", "min", "within 2", "tests by seed")
        rows = [_row(cell) + _seeds(cell, best) for cell in cells(results)]
        return _table(root, columns, rows, _BEST.format(keep=best))
    if over is None and vote:
        return _voted(root, cells(results))
    if over is None:
        return _table(root, _COLUMNS, [_row(cell) for cell in cells(results)], _SEEDS)
    rows = [_merged_row(row) for row in merged(results, over)]
    return _table(root, (*_COLUMNS, "best on dev"), rows, _OVER.format(key=over))


def spread(values: Sequence[float]) -> str:
    """Return `mean ± std` (sample standard deviation, ddof 1), the mean alone for one value."""
    if not values:
        return "-"
    found = mean_std(values)
    return f"{found.mean:.2f}" if found.std is None else f"{found.mean:.2f} ± {found.std:.2f}"


def _voted(root: Path, found: Sequence[Cell]) -> Table:
    """Return the table with votes; below it why some cells have none."""
    folders = {folder.name: folder for folder in result.run_folders(root)}
    votes = [together(cell.runs, folders) for cell in found]
    rows = [[*_row(cell), _number(own.score)] for cell, own in zip(found, votes, strict=True)]
    reasons = dict.fromkeys(f"no vote: {own.reason}" for own in votes if own.reason)
    return _table(root, (*_COLUMNS, "vote"), rows, "\n".join([_SEEDS, _VOTE, *reasons]))


def _number(score: float | None) -> str:
    return "-" if score is None else f"{score:.2f}"


def _table(
    root: Path, columns: Sequence[str], rows: Sequence[Sequence[str]], caption: str
) -> Table:
    shown = Table(title=str(root), title_justify="left")
    for name in (*NAMES, "differs in", "metric"):
        shown.add_column(name, overflow="fold")
    for name in columns:
        shown.add_column(name, justify="right", no_wrap=name not in _FOLDED, overflow="fold")
    for row in rows:
        shown.add_row(*row)
    shown.caption, shown.caption_justify = caption, "left"
    return shown


def _row(cell: Cell) -> list[str]:
    return [
        *cell.names,
        cell.differs,
        cell.runs[0].metric,
        spread(cell.values("dev")),
        spread(cell.values("test")),
        str(len(cell.values("test"))),
        str(cell.failed or ""),
        _learned([cell]),
    ]


def _seeds(cell: Cell, best: int) -> list[str]:
    """Return what the mean of the best leaves out; `-` where there are fewer scores than it takes.

    Scores stand in the order of seeds.
    """
    runs = sorted(cell.runs, key=lambda run: run.seed)
    tests = Cell(cell.names, cell.differs, runs).values("test")
    if not tests:
        return ["-"] * 4
    kept = f"{mean_of_best(tests, keep=best):.2f}" if len(tests) >= best else "-"
    told = " ".join(f"{score:.2f}" for score in tests)
    return [kept, f"{min(tests):.2f}", f"{near_best(tests)} of {len(tests)}", told]


def _merged_row(row: Merged) -> list[str]:
    own = list(row.cells.values())
    tests = [mean_std(cell.values("test")).mean for cell in own if cell.values("test")]
    devs = [mean_std(cell.values("dev")).mean for cell in own if cell.values("dev")]
    return [
        *row.names,
        row.differs,
        own[0].runs[0].metric,
        spread(devs),
        spread(tests),
        str(len(tests)),
        str(sum(cell.failed for cell in own) or ""),
        _learned(own),
        _best(row),
    ]


def _best(row: Merged) -> str:
    """Return the test score of the best value on dev, and which it is; `-` without dev scores."""
    known = {value: cell for value, cell in row.cells.items() if cell.values("dev")}
    if not known:
        return "-"
    devs = [mean_std(cell.values("dev")).mean for cell in known.values()]
    tests = [mean_std(cell.values("test")).mean for cell in known.values()]
    values = [value for value, dev in zip(known, devs, strict=True) if dev == max(devs)]
    return f"{best_on_dev(devs, tests):.2f} ({', '.join(values)})"


def _learned(own: Sequence[Cell]) -> str:
    """Return the number of learned parameters, or from which to which."""
    counts = {run.learned_parameters["total"] for cell in own for run in cell.runs}
    return " to ".join(f"{count:,}" for count in sorted({min(counts), max(counts)}))
