"""The rows of the ledger as text, with the same words and digits in every format."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import combinations
from string import ascii_lowercase

from ptrun.ledger.experiment import AXES, Experiment
from ptrun.ledger.formats import MINUS, NONE, Cell, Table
from ptrun.ledger.ours import Interval, Ours, Verdict
from ptrun.ledger.rows import LedgerRow

PAPERS = {
    "dpt": "DPT",
    "ptuning": "P-tuning",
    "ptuning_v2": "P-tuning v2",
    "idpg": "IDPG",
    "ppt": "PPT",
}
STYLES: Mapping[Verdict, str] = {
    "within": "green",
    "above": "cyan",
    "below": "yellow",
    "not final": "blue",
    "not comparable": "magenta",
    "not run": "dim",
}
"""The colour of each verdict."""
_STATISTICS = {
    "mean": "the mean of {} seeds",
    "best_3": "the mean of the best 3 of {} seeds",
    "max": "the best of {} seeds",
    "min": "the worst of {} seeds",
    "single": "one seed",
}
_MOST = 4  # decimals; more are written as 5e-05


@dataclass(frozen=True)
class ShownRow:
    """A row as text.

    Args:
        row: the row.
        place: its values on the axes that vary in the table.
        digits: the decimals of its numbers.
        cells: what the row shows in each column.
    """

    row: LedgerRow
    place: tuple[str, ...]
    digits: int
    cells: Mapping[str, Cell]

    @property
    def told(self) -> Cell:
        """The verdict with its reason, or with the command that runs the row."""
        verdict, why = self.row.verdict, self.row.why
        if self.row.command:
            return Cell(verdict, self.row.command, STYLES[verdict])
        return Cell(f"{verdict}: {why}" if why else verdict, style=STYLES[verdict])


@dataclass(frozen=True)
class Shown:
    """A table of the ledger.

    Args:
        experiment: the experiment.
        axes: the axes that vary, `metric` last.
        fixed: the values of the other axes.
        lines: one for each printed number.
        notes: remarks on printed numbers, by their mark in the paper's column.
    """

    experiment: Experiment
    axes: tuple[str, ...]
    fixed: str
    lines: Sequence[ShownRow]
    notes: Mapping[str, str]

    @property
    def heading(self) -> str:
        """The name, such as `DPT · Table 1`."""
        return f"{paper_name(self.experiment.paper)} · {table_name(self.experiment.table)}"

    @property
    def reported(self) -> str:
        """The printed statistic, as text."""
        seeds = len(self.experiment.seeds)
        return _STATISTICS[self.experiment.statistic].format(seeds) if seeds > 1 else "one seed"

    @property
    def precision(self) -> str:
        """The precisions of the authors, such as `fp32, fp16`."""
        precisions = (self.experiment.precision_of(line.row.cell) for line in self.lines)
        return ", ".join(dict.fromkeys(precisions))

    @property
    def places(self) -> list[str]:
        """The columns of the axes."""
        return [axis.capitalize() for axis in self.axes]

    @property
    def order(self) -> str:
        """How many pairs of methods have the paper's order; empty if not at a scale.

        Cells become equal at a scale, and their rows show the same runs; that is said, too.
        """
        if self.experiment.scale is None:
            return ""
        rows = [line.row for line in self.lines]
        pairs = list(_pairs(rows))
        same = sum(a * b > 0 for a, b in pairs)
        told = f"{same} of {len(pairs)} pairs of methods have the order that the paper prints"
        runs = [_run(row) for row in rows if row.honest or row.paper]
        again = len(runs) - len(set(runs))
        return f"{told}; rows with the runs of a row above: {again}" if again else told

    def table(
        self,
        verdict: Callable[[ShownRow], Cell] | None,
        without: Collection[str] = (),
        *,
        title: str = "",
        notes: Sequence[str] = (),
    ) -> Table:
        """Return the lines for one of the formats.

        Args:
            verdict: the last column, which the formats write differently; None leaves it out.
            without: columns that are left out.
            title: a line above.
            notes: lines below.
        """
        rows = []
        for line in self.lines:
            cells = {name: cell for name, cell in line.cells.items() if name not in without}
            rows.append(cells | {"Verdict": verdict(line)} if verdict else cells)
        return Table(rows, (*self.places, "Verdict"), title, notes)

    def variants(self) -> list[str]:
        """Return a sentence for each variant of a cell: its runs, what differs, and the scores."""
        sentences = []
        for line in self.lines:
            for variant in line.row.variants:
                count = len(variant.scores)
                runs = "1 run" if count == 1 else f"{count or 'failed'} runs"
                told = f"{' '.join(line.place)}: {runs} with {variant.differs}, not compared"
                digits = max(line.digits, 1)
                scores = [number(score, digits) for _, score in sorted(variant.scores.items())]
                sentences.append(f"{told}: {', '.join(scores)}" if scores else told)
        return sentences

    def reasons(self) -> dict[str, int]:
        """Return a footnote number for each reason; a command is not a reason."""
        rows = [line.row for line in self.lines]
        reasons = dict.fromkeys(row.why for row in rows if row.why and not row.command)
        return {why: number for number, why in enumerate(reasons, start=1)}


def _pairs(rows: Sequence[LedgerRow]) -> Iterator[tuple[float, float]]:
    """Yield the paper's and our difference of each pair of methods that share all else.

    Rows that show the same runs count once, as the first of them.
    """
    columns: dict[tuple[str, ...], dict[str, tuple[float, float]]] = {}
    seen = set()
    for row in rows:
        ours, cell = row.honest or row.paper, row.cell
        if ours is None or cell.number is None or _run(row) in seen:
            continue
        seen.add(_run(row))
        place = (*(cell.at[axis] for axis in AXES if axis != "method"), cell.metric)
        columns.setdefault(place, {})[cell.at["method"]] = (cell.number, ours.value)
    for scores in columns.values():
        for (paper_a, a), (paper_b, b) in combinations(scores.values(), 2):
            yield paper_b - paper_a, b - a


def _run(row: LedgerRow) -> tuple[Hashable, str]:
    """Return what rows that show the same runs have in common."""
    return row.experiment.home(row.cell), row.cell.metric


def shown(experiment: Experiment, rows: Sequence[LedgerRow]) -> Shown:
    """Return a table as text."""
    places = {axis: dict.fromkeys(row.cell.at[axis] for row in rows) for axis in AXES}
    places["metric"] = dict.fromkeys(row.cell.metric for row in rows)
    axes = tuple(axis for axis, values in places.items() if len(values) > 1)
    single = (next(iter(values)) for values in places.values() if len(values) == 1)
    fixed = " · ".join(value for value in single if value not in ("-", ""))
    digits = {metric: _decimals(experiment, metric) for metric in places["metric"]}
    notes = dict.fromkeys(note for row in rows if (note := experiment.note(row.cell)))
    marks = dict(zip(notes, ascii_lowercase, strict=False))
    released = any(row.cell.released is not None for row in rows)
    lines = [_line(row, axes, digits[row.cell.metric], marks, released=released) for row in rows]
    return Shown(experiment, axes, fixed, lines, {mark: note for note, mark in marks.items()})


def paper_name(paper: str) -> str:
    """Return the printed name of a paper."""
    return PAPERS.get(paper, paper)


def table_name(table: str) -> str:
    """Return `Table 1` for `table1` and `Table 4 (zh)` for `table4_zh`."""
    match = re.fullmatch(r"(table|figure)_?([A-Z]?\d+)_?(.*)", table)
    if not match:
        return table.replace("_", " ").capitalize()
    kind, number_, rest = match.groups()
    return f"{kind.capitalize()} {number_}" + (f" ({rest.replace('_', ' ')})" if rest else "")


def number(value: float, digits: int) -> str:
    """Return a number with `digits` decimals and a minus sign."""
    text = f"{value:g}" if digits > _MOST else f"{value:,.{digits}f}"
    return text.replace("-", MINUS)


def signed(value: float, digits: int) -> str:
    """Return a number as `number` does, with a plus sign from 0 on."""
    return ("+" if value >= 0 else "") + number(value, digits)


def listed(value: float | Sequence[float] | None) -> Sequence[float]:
    """Return the printed numbers of a cell; a cell of searched rates has several."""
    if value is None:
        return []
    return value if isinstance(value, Sequence) else [value]


def gap_text(gap: Interval | None, digits: int) -> str:
    """Return `+0.8 [−0.3, 1.9]`."""
    if gap is None:
        return NONE
    ends = f"[{number(gap.low, digits)}, {number(gap.high, digits)}]"
    return f"{signed(gap.difference, digits)} {ends}"


def duration(hours: float) -> str:
    """Return a time in hours, minutes or seconds."""
    if hours >= 1:
        return f"{hours:,.1f} h"
    minutes = hours * 60
    return f"{minutes:.0f} min" if minutes >= 1 else f"{minutes * 60:.0f} s"


def count_text(counts: dict[str, int]) -> str:
    """Return `2 within, 1 below`, without verdicts that do not occur."""
    return ", ".join(f"{count:,} {verdict}" for verdict, count in counts.items() if count)


def total(tables: Sequence[Shown]) -> dict[str, int]:
    """Return the number of rows of all tables by verdict, in a fixed order."""
    counts = Counter(line.row.verdict for table in tables for line in table.lines)
    return {verdict: counts[verdict] for verdict in STYLES}


def _line(
    row: LedgerRow, axes: tuple[str, ...], digits: int, marks: Mapping[str, str], *, released: bool
) -> ShownRow:
    cell, experiment = row.cell, row.experiment
    place = tuple(cell.metric if axis == "metric" else cell.at[axis] for axis in axes)
    cells = {axis.capitalize(): Cell(name) for axis, name in zip(axes, place, strict=True)}

    # The paper's numbers, with the mark of a note.
    mark = marks.get(experiment.note(cell) or "")
    paper = _with_deviation(cell.value, cell.std, digits) + (f" ({mark})" if mark else "")
    cells["Paper"] = Cell(paper)
    if released:
        cells["Released"] = Cell(_with_deviation(cell.released, None, digits))

    # Ours; a table at a scale has other models and data, so there is no difference.
    decimals = max(digits, 1)
    cells["Ours (paper)"] = Cell(_score(row.paper, decimals))
    cells["Ours (honest)"] = Cell(_score(row.honest, decimals))
    if not experiment.scale:
        cells["Difference"] = Cell(gap_text(row.gap, decimals))
    runs = [ours for ours in (row.paper, row.honest) if ours]
    hours = sum(ours.hours for ours in runs)
    timed = bool(runs) and experiment.mean_over(cell) is None
    cells["Seeds"] = Cell(seeds_text(runs[0], experiment) if runs else NONE)
    cells["Learned"] = Cell(f"{runs[0].learned:,}" if runs else NONE)
    cells["Cost"] = Cell(duration(hours), value=hours) if timed else Cell(NONE)
    return ShownRow(row, place, digits, cells)


def _decimals(experiment: Experiment, metric: str) -> int:
    """Return the most decimals that the paper prints for a metric."""
    cells = [cell for cell in experiment.cells if cell.metric == metric]
    each = ((*listed(cell.value), cell.std, cell.released) for cell in cells)
    printed = [n for numbers in each for n in numbers if n is not None]
    ends = (Decimal(repr(n)).as_tuple().exponent for n in printed)
    return max((-end for end in ends if isinstance(end, int) and end < 0), default=0)


def _with_deviation(value: float | Sequence[float] | None, std: float | None, digits: int) -> str:
    if value is None:
        return NONE
    text = ", ".join(number(printed, digits) for printed in listed(value))
    return text + (f" ± {number(std, digits)}" if std is not None else "")


def _score(ours: Ours | None, digits: int) -> str:
    return NONE if ours is None else _with_deviation(ours.value, ours.std, digits)


def seeds_text(ours: Ours, experiment: Experiment) -> str:
    """Return `8 of 10, without 3, 7 (failed), best of 4 configurations on dev`."""
    text = f"{len(ours.scores)} of {len(experiment.seeds)}"
    if ours.missing:
        names = (f"{seed} (failed)" if seed in ours.failed else str(seed) for seed in ours.missing)
        text += f", without {', '.join(names)}"
    if ours.planned > 1:
        part = f"{ours.searched} of " if ours.searched < ours.planned else ""
        text += f", best of {part}{ours.planned} configurations on dev"
    return text
