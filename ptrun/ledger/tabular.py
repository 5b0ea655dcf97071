"""The ledger as CSV for other programs: unrounded numbers and the score of every seed."""

import csv
import io
from collections.abc import Sequence
from dataclasses import astuple

from ptrun.drawing.spreadsheet import safe
from ptrun.ledger.experiment import AXES
from ptrun.ledger.ours import Ours
from ptrun.ledger.shown import Line, Shown, listed

_PLACE = (
    "paper",
    "table",
    *AXES,
    "metric",
    "value",
    "std",
    "released",
    "statistic",
    "seeds",
    "precision",
)
_OURS = (
    "",
    "_std",
    "_n",
    "_missing",
    "_failed",
    "_searched",
    "_planned",
    "_learned",
    "_hours",
    "_scores",
)
_END = ("difference", "low", "high", "verdict", "why", "note", "variants")
HEADER = (*_PLACE, *(f"{p}{end}" for p in ("ours_paper", "ours_honest") for end in _OURS), *_END)


def tabular(tables: Sequence[Shown]) -> str:
    r"""Return the content of the file; lines end in `\n`."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    writer.writerows(map(safe, _row(line)) for table in tables for line in table.lines)
    return text.getvalue()


def _row(line: Line) -> list[str]:
    row, gap = line.row, line.row.gap
    cell, experiment = row.cell, row.experiment
    return [
        experiment.paper,
        experiment.table,
        *(cell.at[axis] for axis in AXES),
        cell.metric,
        *(_list(listed(value)) for value in (cell.value, cell.std, cell.released)),
        experiment.statistic,
        _list(experiment.seeds),
        experiment.precision_of(cell),
        *_ours(row.paper),
        *_ours(row.honest),
        *map(_number, astuple(gap) if gap else (None,) * 3),
        row.verdict,
        line.why or "",
        experiment.note(cell) or "",
        "; ".join(variant.differs for variant in row.variants),
    ]


def _ours(ours: Ours | None) -> list[str]:
    if ours is None:
        return [""] * len(_OURS)
    return [
        _number(ours.value),
        _number(ours.std),
        str(len(ours.scores)),
        _list(ours.missing),
        _list(ours.failed),
        str(ours.searched),
        str(ours.planned),
        str(ours.learned),
        _number(ours.hours),
        " ".join(f"{seed}:{_number(score)}" for seed, score in ours.scores.items()),
    ]


def _list(values: Sequence[float]) -> str:
    return " ".join(map(str, values))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}".rstrip("0").rstrip(".")
