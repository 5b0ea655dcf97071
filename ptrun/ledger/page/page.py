"""The ledger as one self-contained HTML file: its data as JSON, its drawings as SVG."""

import json
import re
from base64 import b64encode
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from datetime import date
from hashlib import sha256
from html import escape
from importlib import resources
from itertools import permutations
from statistics import fmean
from typing import Any

from ptrun import __version__
from ptrun.ledger import plots
from ptrun.ledger.cells import grouped, labels_of
from ptrun.ledger.formats import NONE
from ptrun.ledger.ours import Ours, paired
from ptrun.ledger.plots import SERIES, Canvas, Dot, Path, Scale, Words, dots, scale, ticks, tidy
from ptrun.ledger.rows import LedgerRow
from ptrun.ledger.shown import VERDICTS, Shown, ShownRow, listed, paper_name, signed, table_name

# The drawings of the page's details: a row's seeds and training curves, and a claim's seeds.

_WIDTH, _LANE = 416.0, 34.0
Curve = Sequence[tuple[int, float]]


def by_seed(runs: Mapping[str, Ours], line: ShownRow) -> Canvas:
    """Return a lane for each protocol with a dot for each seed, and a line at the paper's number.

    Args:
        runs: our runs by protocol.
        line: their row.
    """
    canvas = Canvas("Scores by seed", _WIDTH, _LANE * len(runs) + 40)
    printed, bottom = line.row.cell.number, canvas.height - 32
    values = [score for ours in runs.values() for score in ours.scores.values()]
    along = scale([*values, *([] if printed is None else [printed])], 60, _WIDTH - 12)
    for value in ticks(along):
        canvas.add(Path([(along(value), 8), (along(value), bottom)], "grid"))
        canvas.add(Words((along(value), bottom + 14), tidy(value), "muted", "middle"))
    if printed is not None:
        x, text = (
            along(printed),
            f"the paper\N{RIGHT SINGLE QUOTATION MARK}s {line.cells['Paper'].text}",
        )
        canvas.add(Path([(x, 4), (x, bottom)], "paper", 1.5))
        canvas.add(Words((x, canvas.height - 3), text, "paper", "middle"))
    for lane, (name, ours) in enumerate(runs.items()):
        _lane(canvas, name, ours, along, 24 + _LANE * lane)
    return canvas


def _lane(canvas: Canvas, name: str, ours: Ours, along: Scale, y: float) -> None:
    canvas.add(Words((0, y + 4), name))
    canvas.add(*dots(ours, [(along(score), y) for score in ours.scores.values()], "s0", 4))
    canvas.add(Path([(along(ours.value), y - 9), (along(ours.value), y + 9)], "ink", 2))


def training(history: Mapping[int, Curve]) -> Canvas:
    """Return the dev score by step, a line for each seed; one point is a dot."""
    canvas = Canvas("Dev score by step", _WIDTH, 190)
    points = [point for curve in history.values() for point in curve]
    along = scale([step for step, _ in points], 44, _WIDTH - 12)
    up = scale([score for _, score in points], 162, 8)
    for value in ticks(up, 4):
        canvas.add(Path([(44, up(value)), (_WIDTH - 12, up(value))], "grid"))
        canvas.add(Words((38, up(value) + 4), tidy(value), "muted", "end"))
    for value in ticks(along, 4):
        if value >= 0:
            canvas.add(Words((along(value), 182), f"{value:,g}", "muted", "middle"))
    for index, (seed, curve) in enumerate(history.items()):
        role, title = SERIES[index % len(SERIES)], f"seed {seed}"
        line = [(along(step), up(score)) for step, score in curve]
        several = Path(line, role, 1.5, title=title)
        canvas.add(several if len(line) > 1 else Dot(line[0], 3, role, title=title))
    return canvas


def of_claim(claim: Mapping[str, Any]) -> Canvas:
    """Return a dot for each seed: the first method above, the second below, with their means."""
    scores: Sequence[Sequence[float]] = claim["scores"]
    title = f"{claim['first']} above, {claim['second']} below: test scores by seed"
    canvas = Canvas(title, 160, 34)
    along = scale([score for own in scores for score in own], 8, 152)
    for lane, own in enumerate(scores):
        y, middle = 10.0 + 14 * lane, along(fmean(own))
        canvas.add(Path([(8, y), (152, y)], "grid"))
        for seed, score in zip(claim["seeds"], own, strict=True):
            told = f"seed {seed}: {score:.2f}"
            canvas.add(Dot((along(score), y), 3, SERIES[lane], title=told))
        canvas.add(Path([(middle, y - 6), (middle, y + 6)], "ink", 1.5))
    return canvas


# The paired difference of two methods on the same seeds of the same cell, with its p-value.
#
# A pair needs four common seeds: with fewer, no p-value can be small.


@dataclass(frozen=True)
class Pair:
    """One method compared with another.

    Args:
        other: the other method.
        protocol: the protocol of both.
        seeds: the number of common seeds.
        difference: the mean of this method's scores minus the other's.
        p: the two-sided p-value of sign flips.
    """

    other: str
    protocol: str
    seeds: int
    difference: float
    p: float


def pairs(rows: Sequence[LedgerRow]) -> dict[int, list[Pair]]:
    """Return the pairs of each row, by the row's index."""
    found: dict[int, list[Pair]] = defaultdict(list)
    for group in grouped(range(len(rows)), lambda index: _place(rows[index])).values():
        for one, two in permutations(group, 2):
            found[one] += _both(rows[one], rows[two])
    return found


def _place(row: LedgerRow) -> tuple[str, ...]:
    return (*(row.cell.at[axis] for axis in ("backbone", "setting", "task")), row.cell.metric)


def _both(row: LedgerRow, other: LedgerRow) -> Iterator[Pair]:
    """Yield the pair of each protocol."""
    name = other.cell.at["method"]
    sides = (("paper", row.paper, other.paper), ("honest", row.honest, other.honest))
    for protocol, a, b in sides:
        if a and b and (pair := _pair(name, protocol, a.scores, b.scores)):
            yield pair


def _pair(
    name: str, protocol: str, first: Mapping[int, float], second: Mapping[int, float]
) -> Pair | None:
    common = sorted(first.keys() & second.keys())
    left, right = [first[seed] for seed in common], [second[seed] for seed in common]
    p = paired(left, right)
    if p is None:
        return None
    return Pair(name, protocol, len(common), (sum(left) - sum(right)) / len(common), p)


_POINTS = 40  # of a training curve


def page(tables: Sequence[Shown], drawings: Mapping[str, Mapping[str, Canvas]]) -> str:
    """Return the content of the file; `drawings` are grouped by the experiment's name."""
    papers = dict.fromkeys(paper_name(table.experiment.paper) for table in tables)
    drawn = Drawn()
    content = {
        "version": __version__,
        "date": date.today().isoformat(),
        "verdicts": VERDICTS,
        "claims": _claims(claims(papers), drawn),
        "tables": [_table(own, drawings.get(own.experiment.name, {}), drawn) for own in tables],
    }
    style = _part("page.css") + plots.style()
    script = "\n".join(map(_part, ("page.js", "build.js", "claims.js")))
    parts = {
        "style hash": _hash(style),
        "script hash": _hash(script),
        "title": escape(f"Ledger: {', '.join(papers)}"),
        "style": style,
        "script": script,
        "drawings": "".join(drawn),
        "data": embedded(content),
    }
    return re.sub(r"\[\[([a-z ]+)]]", lambda place: parts[place[1]], _part("page.html"))


class Drawn(list[str]):
    """The drawings of the page, each in an element that is not shown."""

    def add(self, canvas: Canvas) -> int:
        """Keep a drawing and return its number."""
        self.append(f'<template id="drawing{len(self)}">{plots.inside(canvas)}</template>')
        return len(self) - 1


def embedded(content: Any) -> str:
    """Return JSON that cannot close its script element."""
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for mark in "<>&\u2028\u2029":
        text = text.replace(mark, f"\\u{ord(mark):04x}")
    return text


def _hash(text: str) -> str:
    """Return the name of a script or style in the page's policy: no other one runs."""
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


def _part(name: str) -> str:
    return resources.files("ptrun.ledger.page").joinpath(name).read_text(encoding="utf-8")


def _claims(content: dict[str, Any], drawn: Drawn) -> dict[str, Any]:
    """Return the claims, each with its drawing."""
    with_plots = [{**own, "plot": drawn.add(of_claim(own))} for own in content["claims"]]
    return {**content, "claims": with_plots}


def _table(table: Shown, drawings: Mapping[str, Canvas], drawn: Drawn) -> dict[str, Any]:
    experiment = table.experiment
    first = "curves" if "curves" in drawings else "seeds"
    beside = pairs([line.row for line in table.lines])
    return {
        "paper": paper_name(experiment.paper),
        "table": table_name(experiment.table),
        **_fields(experiment, ("name", "title", "source", "protocol", "hours")),
        **_fields(table, ("fixed", "reported", "precision", "notes", "axes")),
        "released": "Released" in table.lines[0].cells,
        "variants": [*filter(None, [table.order]), *table.variants()],
        "first": first if experiment.curve else None,  # a figure opens with its drawing
        "plots": {name: drawn.add(canvas) for name, canvas in drawings.items()},
        "rows": [_row(own, beside.get(index, []), drawn) for index, own in enumerate(table.lines)],
    }


def _row(line: ShownRow, beside: Sequence[Pair], drawn: Drawn) -> dict[str, Any]:
    row, cell = line.row, line.row.cell
    content: dict[str, Any] = {
        **_fields(line, ("place", "why", "runs")),
        "paper": line.cells["Paper"].text,
        "released": line.cells["Released"].text if "Released" in line.cells else NONE,
        "where": " ".join([*cell.at.values(), cell.metric]),
        "value": next(iter(listed(cell.value)), None),
        "std": cell.std,
        "rerun": cell.released,
        "verdict": row.verdict,
    }
    runs = {name: ours for name, ours in (("paper", row.paper), ("honest", row.honest)) if ours}
    if not runs:
        return content
    first = next(iter(runs.values()))
    content |= {
        "ours": {name: _ours(ours) for name, ours in runs.items()},
        "plot": drawn.add(by_seed(runs, line)),
        "curves": {name: drawn.add(training(own)) for name, own in _curves(runs).items()},
        "shown": {name: line.cells[f"Ours ({name})"].text for name in ("paper", "honest")},
        "difference": line.cells["Difference"].text if "Difference" in line.cells else NONE,
        "cost": line.cells["Cost"].text,
        "seeds": f"{len(first.scores)}/{len(row.experiment.seeds)}",
        "learned": first.learned,
        "hours": round(sum(ours.hours for ours in runs.values()), 4),
        "labels": _labels(first),
        "pairs": [_pair_as_data(pair, max(line.digits, 1)) for pair in beside],
    }
    if row.gap:
        content["gap"] = [round(number, 4) for number in astuple(row.gap)]
    return content


def _ours(ours: Ours) -> dict[str, Any]:
    return {
        **_fields(ours, ("missing", "failed", "searched", "planned")),
        "value": round(ours.value, 4),
        "scores": [[seed, round(score, 4)] for seed, score in ours.scores.items()],
    }


def _labels(ours: Ours) -> list[list[Any]]:
    """Return label, count, mean precision, recall and F1, and what it is taken for."""
    return [
        [name, own.count, *(f"{fmean(scores):.2f}" for scores in own.scores.values()), own.confused]
        for name, own in labels_of(ours.by_label).items()
    ]


def _curves(runs: Mapping[str, Ours]) -> dict[str, dict[int, Curve]]:
    """Return the training curves of a protocol by seed, if any run has one."""
    found = {
        name: {seed: _thinned(curve) for seed, curve in ours.history.items() if curve}
        for name, ours in runs.items()
    }
    return {name: curves for name, curves in found.items() if curves}


def _thinned(history: Curve) -> Curve:
    """Return at most `_POINTS` points of a curve and its highest; the last is among them."""
    count = len(history)
    kept = {round(index * (count - 1) / (_POINTS - 1)) for index in range(_POINTS)}
    best = max(range(count), key=lambda index: history[index][1])
    few = sorted(kept | {best}) if count > _POINTS else range(count)
    return [history[index] for index in few]


def _pair_as_data(pair: Pair, digits: int) -> dict[str, Any]:
    p = f"{pair.p:.2g}" if pair.p < 0.1 else f"{pair.p:.2f}"
    return {**asdict(pair), "difference": signed(pair.difference, digits), "p": p}


def _fields(record: object, names: Sequence[str]) -> dict[str, Any]:
    return {name: getattr(record, name) for name in names}


# The papers' claims on small pretrained models and public data, from `claims.json`.
#
# `benchmarks/claims_real.py` writes that file. Its page says how the scores were measured.


def claims(papers: Collection[str]) -> dict[str, Any]:
    """Return the claims of papers, by their printed names, and how they were measured."""
    text = resources.files("ptrun.ledger.page").joinpath("claims.json").read_text(encoding="utf-8")
    content: dict[str, Any] = json.loads(text)
    return {**content, "claims": [one for one in content["claims"] if one["paper"] in papers]}
