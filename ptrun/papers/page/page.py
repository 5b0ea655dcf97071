"""The ledger as one HTML file that needs no other: its tables, and its charts as pictures."""

import json
from base64 import b64encode
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from importlib import resources
from statistics import fmean, stdev
from typing import Any

from ptrun.papers.ours import Interval
from ptrun.papers.shown import Shown, count_text, gap_text, paper_name, seeds_text, table_name
from ptrun.reporting import formats
from ptrun.reporting.cells import grouped
from ptrun.reporting.formats import Cell, Table
from ptrun.types import __version__


def page(tables: Sequence[Shown], drawings: Mapping[str, Mapping[str, str]]) -> str:
    """Return the content of the file; `drawings` are SVG by the experiment's and their own name."""
    contents = [_content(table, drawings.get(table.experiment.name, {})) for table in tables]
    papers = grouped(contents, lambda content: str(content["paper"]))
    style, script = _source("page.css"), _source("sort.js")
    template = formats.templates("ptrun.papers.page").get_template("page.html")
    return template.render(
        version=__version__,
        papers=papers,
        counts=count_text(tables),
        claims=claims(papers),
        style=style,
        style_hash=_hash(style),
        script=script,
        script_hash=_hash(script),
    )


def _content(table: Shown, drawings: Mapping[str, str]) -> dict[str, Any]:
    """Return what the page shows of a table; each row has its command."""
    printed, commands = table.table, [row.command or "" for row in table.rows]
    if any(commands):
        lines = zip(printed.rows, commands, strict=True)
        rows = [{**cells, "Command": command} for cells, command in lines]
        printed = replace(printed, rows=rows, words=(*printed.words, "Command"))
    return {
        "shown": table,
        "experiment": table.experiment,
        "paper": paper_name(table.experiment.paper),
        "name": table_name(table.experiment.table),
        "counts": count_text([table]),
        "table": printed,
        "drawings": {name: _base64(svg.encode()) for name, svg in drawings.items()},
        "scores": _scores(table),
    }


def _scores(table: Shown) -> Table:
    """Return the scores of all seeds, a row for each protocol of each row that ran."""
    rows = []
    for row in table.rows:
        for protocol, ours in row.runs.items():
            if ours:
                cells = {axis.capitalize(): row.cell.place[axis] for axis in table.axes}
                cells |= {"Protocol": protocol, "Seeds": seeds_text(ours, table.experiment)}
                scores = (f"{seed}: {score:.2f}" for seed, score in ours.scores.items())
                rows.append(cells | {"Score of each seed": ", ".join(scores)})
    return Table(rows, rows[0].keys() if rows else ())


def _source(name: str) -> str:
    return resources.files("ptrun.papers.page").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """Return the name of a script or style in the page's policy: no other one runs."""
    return f"sha256-{_base64(sha256(text.encode()).digest())}"


def _base64(content: bytes) -> str:
    return b64encode(content).decode()


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
                "Verdict": Cell(claim["verdict"], _CLAIM_STYLES[claim["verdict"]]),
            }
        )
    return Table(rows, ("Claim", "First", "Second", "Verdict"), notes=[content["measured"]])
