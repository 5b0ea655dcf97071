"""The rows of the ledger as text, with the same words and digits in every format."""

import re
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from itertools import combinations

from ptrun.folder.scan import duration
from ptrun.papers.experiment import AXES, Experiment
from ptrun.papers.ours import Interval, Ours, Verdict
from ptrun.papers.rows import LedgerRow
from ptrun.reporting.formats import MINUS, NONE, Cell, Table

PAPERS = {
    "dpt": "DPT",
    "ptuning": "P-tuning",
    "ptuning_v2": "P-tuning v2",
    "idpg": "IDPG",
    "ppt": "PPT",
    "peft": "PEFT's comparison",
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
_COSTS = {
    "forgetting": ("Forgetting", 4),
    "seconds": ("Seconds", 0),
    "gib": ("GiB", 1),
    "parameters": ("Parameters", 0),
    "bytes": ("Bytes", 0),
    "tokens": ("Tokens added", 1),
}
"""The heading of each cost, and its decimals."""
_MOST = 4  # decimals; more are written as 5e-05


@dataclass(frozen=True)
class Shown:
    """A table of the ledger as text: an experiment, and a row for each printed number."""

    experiment: Experiment
    rows: Sequence[LedgerRow]

    @property
    def heading(self) -> str:
        """The name, such as `DPT · Table 1`."""
        return f"{paper_name(self.experiment.paper)} · {table_name(self.experiment.table)}"

    @property
    def subject(self) -> str:
        """The title, and what all rows have in common."""
        common = [next(iter(values)) for values in self._places.values() if len(values) == 1]
        fixed = " · ".join(value for value in common if value not in ("-", ""))
        return self.experiment.title + (f" ({fixed})" if fixed else "")

    @property
    def axes(self) -> list[str]:
        """The axes that vary, `metric` last."""
        return [axis for axis, values in self._places.items() if len(values) > 1]

    @property
    def reported(self) -> str:
        """The printed statistic, as text."""
        seeds = len(self.experiment.seeds)
        return _STATISTICS[self.experiment.statistic].format(seeds) if seeds > 1 else "one seed"

    @property
    def precision(self) -> str:
        """The precisions of the authors, such as `fp32, fp16`."""
        return ", ".join(dict.fromkeys(self.experiment.precision_of(row.cell) for row in self.rows))

    @property
    def order(self) -> str:
        """How many pairs of methods have the paper's order; empty if not at a scale.

        Cells become equal at a scale, and their rows show the same runs; that is said, too.
        """
        if self.experiment.scale is None:
            return ""
        pairs = list(_pairs(self.rows))
        same = sum(a * b > 0 for a, b in pairs)
        told = f"{same} of {len(pairs)} pairs of methods have the order that the paper prints"
        runs = [_run(row) for row in self.rows if row.ours]
        again = len(runs) - len(set(runs))
        return f"{told}; rows with the runs of a row above: {again}" if again else told

    @property
    def undecided(self) -> str:
        """How many pairs of printed accuracies have no order; empty if the table has no ranks."""
        if not (ranks := self.experiment.ranks.values()):
            return ""
        near = sum(last - first for first, last in ranks) // 2
        pairs, questions = len(ranks) * (len(ranks) - 1) // 2, self.experiment.questions
        told = f"ranks: the places that {questions:,} questions leave open (95 %, binomial); "
        return told + f"{near:,} of {pairs:,} pairs of rows have no order"

    @cached_property
    def table(self) -> Table:
        """The rows for each of the formats, without columns that no row fills.

        Below stand the notes on printed numbers and the reasons of verdicts, with their marks.
        """
        rows = [self._cells(row) for row in self.rows]
        full = [name for name in rows[0] if any(str(cells[name]) != NONE for cells in rows)]
        if self.experiment.scale and len({row.verdict for row in self.rows}) == 1:
            full.remove("Verdict")  # at a scale, no row has another one than `not comparable`
        rows = [{name: cells[name] for name in full} for cells in rows]
        notes = [f"{mark} {text}".lstrip() for text, mark in self._marks.items()]
        notes += filter(None, [self.undecided])
        axes = [axis.capitalize() for axis in self.axes]
        return Table(rows, [*axes, "Verdict"], axes, self.subject, notes)

    @property
    def variants(self) -> list[str]:
        """A sentence for each variant of a cell: its runs, what differs, and the scores."""
        sentences = []
        for row in self.rows:
            place = " ".join(row.cell.place[axis] for axis in self.axes)
            digits = max(self.digits[row.cell.metric], 1)
            for differs, by_seed in row.variants.items():
                scores = [number(score, digits) for _, score in sorted(by_seed.items())]
                runs = "1 run" if len(scores) == 1 else f"{len(scores) or 'failed'} runs"
                told = f"{place}: {runs} with {differs}, not compared"
                sentences.append(f"{told}: {', '.join(scores)}" if scores else told)
        return sentences

    @cached_property
    def digits(self) -> dict[str, int]:
        """The most decimals that the paper prints for a metric."""
        digits = dict.fromkeys(self._places["metric"], 0)
        for cell in (row.cell for row in self.rows):
            for printed in (*listed(cell.value), cell.std, cell.released):
                exponent = Decimal(repr(printed or 0)).as_tuple().exponent
                digits[cell.metric] = max(digits[cell.metric], -int(exponent))
        return digits

    @cached_property
    def _places(self) -> dict[str, dict[str, None]]:
        """The values of each axis."""
        axes = (*AXES, "metric")
        return {axis: dict.fromkeys(row.cell.place[axis] for row in self.rows) for axis in axes}

    @cached_property
    def _marks(self) -> dict[str | None, str]:
        """The mark of each note and of each reason; a command is not a reason."""
        texts: dict[str | None, None] = {}
        for row in self.rows:
            texts |= {self.experiment.note(row.cell): None, None if row.command else row.why: None}
            texts |= {ours.hardly_learned or None: None for ours in row.runs.values() if ours}
        texts.pop(None, None)
        return {text: f" ({number})" for number, text in enumerate(texts, start=1)}

    def _cells(self, row: LedgerRow) -> dict[str, str | Cell]:
        cell, experiment, ours = row.cell, self.experiment, row.ours
        digits = self.digits[cell.metric]
        decimals = max(digits, 1)
        cells: dict[str, str | Cell] = {axis.capitalize(): cell.place[axis] for axis in self.axes}
        mark = self._marks.get(experiment.note(cell), "")
        cells["Paper"] = _with_deviation(cell.value, cell.std, digits) + mark
        cells["Released"] = _with_deviation(cell.released, None, digits)
        first, last = experiment.ranks.get(cell.key, (0, 0))
        cells["Ranks"] = f"{first}\N{EN DASH}{last}" if first else NONE
        for protocol, runs in row.runs.items():
            mark = self._marks.get(runs.hardly_learned, "") if runs else ""
            text = _with_deviation(runs.value, runs.std, decimals) if runs else NONE
            cells[f"Ours ({protocol})"] = text + mark
        cells["Difference"] = gap_text(row.gap, decimals)
        planned = experiment.under("paper" if row.paper else "honest")
        cells["Seeds"] = seeds_text(ours, planned) if ours else NONE
        cells["Learned"] = f"{ours.learned:,}" if ours else NONE
        hours = sum(runs.hours for runs in row.runs.values() if runs)
        timed = ours and experiment.mean_over(cell) is None
        cells["Cost"] = duration(3600 * hours) if timed else NONE
        for name, (label, digits) in _COSTS.items() if experiment.costs else ():
            for told, costs in ((label, cell.costs), (f"{label}, ours", ours and ours.costs)):
                value = (costs or {}).get(name)
                cells[told] = NONE if value is None else number(value, digits)
        verdict = row.verdict + self._marks.get(row.why, "")
        cells["Verdict"] = Cell(verdict, STYLES[row.verdict])
        return cells


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
        place = tuple(value for axis, value in cell.place.items() if axis != "method")
        columns.setdefault(place, {})[cell.at["method"]] = (cell.number, ours.value)
    for scores in columns.values():
        for (paper_a, a), (paper_b, b) in combinations(scores.values(), 2):
            yield paper_b - paper_a, b - a


def _run(row: LedgerRow) -> tuple[Hashable, str]:
    """Return what rows that show the same runs have in common."""
    return row.experiment.home(row.cell), row.cell.metric


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
    sign = "+" if gap.difference >= 0 else ""
    return f"{sign}{number(gap.difference, digits)} {ends}"


def count_text(tables: Sequence[Shown]) -> str:
    """Return `2 within, 1 below`: the number of rows by verdict."""
    counts = Counter(row.verdict for table in tables for row in table.rows)
    return ", ".join(f"{counts[name]:,} {name}" for name in STYLES if counts[name])


def _with_deviation(value: float | Sequence[float] | None, std: float | None, digits: int) -> str:
    if value is None:
        return NONE
    text = ", ".join(number(printed, digits) for printed in listed(value))
    return text + (f" ± {number(std, digits)}" if std is not None else "")


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
