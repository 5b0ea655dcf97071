"""The ledger as one HTML file that needs no other: its tables, and its charts as pictures."""

import json
from base64 import b64encode
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from html import escape
from importlib import resources
from statistics import fmean, stdev
from typing import Any

from ptrun.papers.ours import Interval
from ptrun.papers.shown import Shown, count_text, gap_text, paper_name, seeds_text, table_name
from ptrun.reporting.cells import grouped
from ptrun.reporting.formats import Cell, Table, html, page_head
from ptrun.types import __version__

_HEAD = """\
<h1>Ledger</h1>
<p>Every printed number of the papers beside ours, with the command that reproduces it: {counts}.
</p>"""
_FOOT = f"""\
<p><b>Difference</b>: our score minus the paper's, in points, with its 95 % interval over seeds. The
interval includes the paper's deviation where it is printed. <b>within</b>: the interval contains 0;
<b>above</b>, <b>below</b>: it does not. <b>paper</b>: the authors' protocol; <b>honest</b>: the dev
split selects, and all seeds count.</p>
<p>ptrun {__version__}</p>"""


def page(tables: Sequence[Shown], drawings: Mapping[str, Mapping[str, str]]) -> str:
    """Return the content of the file; `drawings` are SVG by the experiment's and their own name."""
    papers = grouped(tables, lambda table: paper_name(table.experiment.paper))
    parts = [page_head(f"Ledger: {', '.join(papers)}"), _HEAD.format(counts=count_text(tables))]
    for paper, shown in papers.items():
        parts += [f"<h2>{escape(paper)}</h2>", "<ul>"]
        for table in shown:
            experiment, counts = table.experiment, count_text([table])
            name = escape(table_name(experiment.table))
            parts.append(f'<li><a href="#{escape(experiment.name)}">{name}</a>: {counts}</li>')
        parts.append("</ul>")
    for table in tables:
        parts += _section(table, drawings.get(table.experiment.name, {}))
    if (claimed := claims(papers)).rows:
        parts += ["<section>", "<h2>Claims on small pretrained models</h2>", html(claimed)]
        parts.append("</section>")
    return "\n".join([*parts, _FOOT])


def _section(table: Shown, drawings: Mapping[str, str]) -> Iterator[str]:
    """Yield the part of a table: what it is, its charts, its rows with commands, and its seeds."""
    experiment, printed = table.experiment, table.table
    yield f'<section id="{escape(experiment.name)}">'
    yield f"<h2>{escape(table.heading)}</h2>"
    measured = {
        "Protocol": experiment.protocol,
        "Source": experiment.source,
        "Reported": table.reported,
        "Precision": table.precision,
        "Cost": experiment.hours,
    }
    yield f"<p>{escape(table.subject)}</p>"
    yield from (f"<p>{name}: {escape(text)}</p>" for name, text in measured.items() if text)
    for name, svg in drawings.items():
        picture = b64encode(svg.encode()).decode()
        yield f'<p><img alt="{name}" src="data:image/svg+xml;base64,{picture}"></p>'
    if any(row.command for row in table.rows):
        lines = zip(printed.rows, table.rows, strict=True)
        rows = [{**cells, "Command": row.command or ""} for cells, row in lines]
        printed = replace(printed, rows=rows, words=(*printed.words, "Command"))
    yield html(printed)
    yield from (f"<p>{escape(text)}.</p>" for text in (table.order, *table.variants) if text)
    scores = []
    for row in table.rows:
        for protocol, ours in row.runs.items():
            if ours:
                cells = {axis.capitalize(): row.cell.place[axis] for axis in table.axes}
                cells |= {"Protocol": protocol, "Seeds": seeds_text(ours, experiment)}
                by_seed = (f"{seed}: {score:.2f}" for seed, score in ours.scores.items())
                scores.append(cells | {"Score of each seed": ", ".join(by_seed)})
    if scores:
        yield "<details><summary>Scores by seed</summary>"
        yield f"{html(Table(scores, scores[0]))}</details>"
    yield "</section>"


# The papers' claims on small pretrained models and public data, from `claims.json`.
#
# `benchmarks/claims_real.py` writes that file. Its page says how the scores were measured.

_CLAIM_STYLES = {"holds": "green", "does not hold": "yellow", "undecided": "magenta"}


def claims(papers: Collection[str]) -> Table:
    """Return the claims of papers, by their printed names; a note says how they were measured."""
    file = resources.files("ptrun.papers").joinpath("claims.json")
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
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
