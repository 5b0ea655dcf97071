"""The ledger as one HTML file that needs no other: its tables, and its charts as pictures."""

import json
from base64 import b64encode
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from importlib import resources
from itertools import permutations
from statistics import fmean, stdev
from typing import Any

from ptrun.ledger import formats
from ptrun.ledger.cells import grouped, labels_of
from ptrun.ledger.experiment import AXES
from ptrun.ledger.formats import Cell, Table
from ptrun.ledger.ours import Interval, Ours, paired
from ptrun.ledger.shown import (
    Shown,
    ShownRow,
    count_text,
    gap_text,
    paper_name,
    seeds_text,
    signed,
    table_name,
    total,
)
from ptrun.types import __version__

_P_VALUE = (
    "p: two-sided p-value of sign flips of the paired differences, not corrected for multiple "
    "tests."
)


def page(tables: Sequence[Shown], drawings: Mapping[str, Mapping[str, str]]) -> str:
    """Return the content of the file; `drawings` are SVG by the experiment's and their own name."""
    contents = [_content(table, drawings.get(table.experiment.name, {})) for table in tables]
    papers = grouped(contents, lambda content: str(content["paper"]))
    style, script = _source("page.css"), _source("sort.js")
    template = formats.templates().get_template("page.html")
    return template.render(
        version=__version__,
        papers=papers,
        counts=count_text(total(tables)),
        claims=claims(papers),
        style=style,
        style_hash=_hash(style),
        script=script,
        script_hash=_hash(script),
    )


def _content(table: Shown, drawings: Mapping[str, str]) -> dict[str, Any]:
    """Return what the page shows of a table."""
    details = {
        "Scores by seed": _scores(table),
        "Methods on the same seeds": pairs(table),
        "Labels on test, means over seeds": _labels(table),
    }
    return {
        "shown": table,
        "experiment": table.experiment,
        "paper": paper_name(table.experiment.paper),
        "name": table_name(table.experiment.table),
        "counts": count_text(total([table])),
        "rows": table.table(lambda line: line.told),
        "drawings": {name: _base64(svg.encode()) for name, svg in drawings.items()},
        "details": {name: detail for name, detail in details.items() if detail.rows},
    }


def _source(name: str) -> str:
    return resources.files("ptrun.ledger.page").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """Return the name of a script or style in the page's policy: no other one runs."""
    return f"sha256-{_base64(sha256(text.encode()).digest())}"


def _base64(content: bytes) -> str:
    return b64encode(content).decode()


# The details of a table: the seeds of its rows, pairs of methods, and labels.


def _scores(table: Shown) -> Table:
    """Return the scores of all seeds, a row for each protocol of each row that ran."""
    rows = []
    for line in table.lines:
        for protocol, ours in _runs(line).items():
            cells: dict[str, str] = {name: line.cells[name].text for name in table.places}
            cells |= {"Protocol": protocol, "Seeds": seeds_text(ours, table.experiment)}
            scores = (f"{seed}: {score:.2f}" for seed, score in ours.scores.items())
            rows.append(cells | {"Score of each seed": ", ".join(scores)})
    return Table(rows, (*table.places, "Protocol", "Seeds", "Score of each seed"))


def pairs(table: Shown) -> Table:
    """Return the paired difference of two methods on the same seeds of the same cell.

    A pair needs four common seeds: with fewer, no p-value can be small.
    """
    rows = []
    rest = [axis for axis in AXES if axis != "method"]
    same_cell = grouped(
        table.lines, lambda line: (*(line.row.cell.at[a] for a in rest), line.row.cell.metric)
    )
    for lines in same_cell.values():
        for line, other in permutations(lines, 2):
            theirs = _runs(other)
            for protocol, ours in _runs(line).items():
                if protocol not in theirs:
                    continue
                seeds = sorted(ours.scores.keys() & theirs[protocol].scores.keys())
                scores = [ours.scores[seed] for seed in seeds]
                other_scores = [theirs[protocol].scores[seed] for seed in seeds]
                p = paired(scores, other_scores)
                if p is None:
                    continue
                difference = fmean(scores) - fmean(other_scores)
                cells: dict[str, str] = {name: line.cells[name].text for name in table.places}
                cells |= {"Compared with": other.row.cell.at["method"], "Protocol": protocol}
                cells |= {"Seeds": str(len(seeds))}
                cells |= {"Difference": signed(difference, max(line.digits, 1))}
                rows.append(cells | {"p": f"{p:.2g}" if p < 0.1 else f"{p:.2f}"})
    return Table(rows, (*table.places, "Compared with", "Protocol"), notes=[_P_VALUE])


def _labels(table: Shown) -> Table:
    """Return the scores of each label, of the first protocol that ran."""
    rows = []
    for line in table.lines:
        by_label = next((ours.by_label for ours in _runs(line).values()), ())
        for label, scores in labels_of(by_label).items():
            cells: dict[str, str] = {name: line.cells[name].text for name in table.places}
            cells |= {"Label": label, "Count": f"{scores.count:,}"}
            cells |= {name.capitalize(): f"{fmean(n):.2f}" for name, n in scores.scores.items()}
            rows.append(cells | {"Read as": scores.confused})
    return Table(rows, (*table.places, "Label", "Read as"))


def _runs(line: ShownRow) -> dict[str, Ours]:
    """Return our runs of a row by protocol."""
    protocols = {"paper": line.row.paper, "honest": line.row.honest}
    return {protocol: ours for protocol, ours in protocols.items() if ours}


# The papers' claims on small pretrained models and public data, from `claims.json`.
#
# `benchmarks/claims_real.py` writes that file. Its page says how the scores were measured.

_CLAIM_STYLES = {"holds": "green", "does not hold": "yellow", "undecided": "magenta"}


def claims(papers: Collection[str]) -> Table:
    """Return the claims of papers, by their printed names; a note says how they were measured."""
    content: dict[str, Any] = json.loads(_source("claims.json"))
    rows: list[dict[str, str | Cell]] = []
    for claim in content["claims"]:
        if claim["paper"] not in papers:
            continue
        averages = [f"{fmean(scores):.2f} ± {stdev(scores):.2f}" for scores in claim["scores"]]
        rows.append(
            {
                "Claim": f"{claim['paper']}, {claim['source']}: {claim['says']}",
                "First": f"{claim['first']} {averages[0]}",
                "Second": f"{claim['second']} {averages[1]}",
                "Difference": gap_text(Interval(*claim["gap"]), 2),
                "Verdict": Cell(claim["verdict"], style=_CLAIM_STYLES[claim["verdict"]]),
            }
        )
    return Table(rows, ("Claim", "First", "Second", "Verdict"), notes=[content["measured"]])
