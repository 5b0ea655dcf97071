"""`ptrun report --paper NAME`: every printed number beside ours, printed or written to files."""

import json
import re
from base64 import b64encode
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, fields, replace
from html import escape
from importlib import resources
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from ptrun.errors import UserError, unknown
from ptrun.files import below, write_text
from ptrun.papers import charts
from ptrun.papers import experiment as experiments
from ptrun.papers.ours import Interval, Ours
from ptrun.papers.rows import LedgerRow, rows
from ptrun.papers.shown import (
    PAPERS,
    Shown,
    count_text,
    gap_text,
    paper_name,
    seeds_text,
    table_name,
)
from ptrun.reporting import formats
from ptrun.reporting.cells import grouped
from ptrun.reporting.formats import Cell, Table, html, page_head
from ptrun.types import __version__


def report(
    paper: str, table: str | None, outputs: Path, to: Path | None, scale: str | None = None
) -> RenderableType:
    """Return what to print: tables of a paper, or with `to` the files that were written."""
    outputs = outputs.expanduser()
    if outputs != Path("outputs") and not outputs.is_dir():
        raise UserError(f"report --outputs {outputs}: no such folder.")
    printed = [experiments.load(name) for name in _names(paper, table)]
    if scale:
        scaled = [experiment.at(scale) for experiment in printed if experiment.pocket]
        if not scaled:
            filled = [name for name in experiments.names() if experiments.load(name).pocket]
            raise UserError(
                f"{printed[0].name} has only a smoke test at {scale} scale.\n"
                f"Tables with rows: {', '.join(filled)}."
            )
        printed = scaled
    tables = [Shown(experiment, rows(experiment, outputs)) for experiment in printed]
    if to is None:
        return terminal(tables)
    folder = to.expanduser()
    files = write(tables, folder)
    lines = [f"{count_text(tables)}.", *(f"  {folder / name}" for name in files if "/" not in name)]
    if count := sum("/" in name for name in files):
        lines.append(f"  {folder / 'figures'}: {count} drawings")
    if not charts.possible():
        lines.append("  no figures: they need matplotlib, type pip install 'ptrun[figures]'")
    return Text("\n".join(lines))


def write(tables: Sequence[Shown], folder: Path) -> list[str]:
    """Write all files of a ledger and return their names; without matplotlib it has no figures."""
    folder.mkdir(parents=True, exist_ok=True)
    figures, names = below(folder, "figures"), []
    drawings: dict[str, dict[str, str]] = {}
    for table in tables if charts.possible() else ():
        name = table.experiment.name
        for kind, figure in charts.charts(table).items():
            svg = charts.svg(figure, f"{table.heading}: {kind}")
            drawings.setdefault(name, {})[kind] = svg
            figures.mkdir(exist_ok=True)
            names.append(f"figures/{name.replace('/', '-')}-{kind}.svg")
            write_text(folder / names[-1], svg)
    texts = {
        "index.html": page(tables, drawings),
        "ledger.csv": tabular(tables),
        "ledger.tex": latex(tables),
    }
    for name, text in texts.items():
        write_text(folder / name, text)
    return [*texts, *names]


def _names(paper: str, table: str | None) -> list[str]:
    """Return the names of the selected experiments, in the order of the report."""
    every = [name.split("/") for name in experiments.names()]
    papers = {paper_of for paper_of, _ in every} | {"all"}
    if paper not in papers:
        raise UserError(unknown(f"report --paper {paper}", paper, papers))
    of_paper = [names for names in every if paper in ("all", names[0])]
    tables = {table_of for _, table_of in of_paper}
    if table is not None and table not in tables:
        raise UserError(unknown(f"report --table {table}", table, tables))
    of_paper.sort(key=lambda names: _rank(*names))
    return ["/".join(names) for names in of_paper if table in (None, names[1])]


def _rank(paper: str, table: str) -> tuple[int, int, list[str | int]]:
    """Return a sort key: papers in their usual order, tables before figures, 10 after 9."""
    kind = 0 if table.startswith("table") else 2 if table.startswith("figure") else 1
    parts = re.split(r"(\d+)", table)
    order = [*PAPERS, paper]
    return order.index(paper), kind, [int(part) if part.isdigit() else part for part in parts]


# The ledger on the terminal: each table with its reasons below, then the verdict counts.

_MOST_VARIANTS = 8


def terminal(tables: Sequence[Shown]) -> Group:
    """Return what the command prints."""
    parts: list[RenderableType] = []
    for table in tables:
        title = f"{table.heading}: {table.subject}"
        parts += [replace(table.table, title=title, notes=list(_notes(table))), ""]
    return Group(*parts, f"{count_text(tables)}.")


def _notes(table: Shown) -> Iterator[str]:
    """Yield the lines below a table."""
    experiment = table.experiment
    yield from table.table.notes
    if commands := [row.command for row in table.rows if row.command]:
        scale = f" +scale={experiment.scale}" if experiment.scale else ""
        yield f"not run yet: ptrun experiment={experiment.name}{scale}"
        yield f"one cell alone: {commands[0]}"
    yield from table.variants[:_MOST_VARIANTS]
    if len(table.variants) > _MOST_VARIANTS:
        yield f"{len(table.variants) - _MOST_VARIANTS} more variants: see --to FOLDER"
    divisor = "n - 1" if experiment.ddof else "n"
    meaning = f"{table.reported} ± standard deviation ({divisor}), in {table.precision}"
    yield meaning if table.order else f"{meaning}; difference to the paper [95 % interval]"
    yield from filter(None, [table.order])


# The ledger as files: LaTeX to include, and CSV for other programs.


_LATEX = {
    "\\": r"\textbackslash{}",
    **{mark: f"\\{mark}" for mark in "&%$#_{}"},
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"\ensuremath{\pm}",
    "\N{MULTIPLICATION SIGN}": r"\ensuremath{\times}",
    "·": r"\textperiodcentered{}",
    formats.MINUS: r"\ensuremath{-}",
    formats.NONE: "--",
}


def latex(tables: Sequence[Shown]) -> str:
    """Return one longtable for each table, with its notes below."""
    parts = ["% needs \\usepackage{booktabs,longtable}"]
    for shown in tables:
        experiment, table = shown.experiment, shown.table
        title = f"{shown.heading}. {shown.subject}. {shown.reported.capitalize()}; "
        title += f"95 % intervals of the difference; {shown.precision}."
        label = f"tab:{experiment.paper}-{experiment.table}"
        rows = [table.columns, *([cell.text for cell in cells] for cells in table.cells)]
        head, *lines = [" & ".join(map(escaped_latex, row)) + r" \\" for row in rows]
        form = "".join("l" if name in table.words else "r" for name in table.columns)
        caption = f"\\caption{{{escaped_latex(title)}}}\\label{{{label}}}\\\\"
        above = [f"\\begin{{longtable}}{{{form}}}", caption, r"\toprule", head, r"\midrule"]
        notes = [rf"\noindent {escaped_latex(note)}\par" for note in table.notes]
        end = [r"\bottomrule", r"\end{longtable}"]
        parts.append("\n".join([*above, r"\endhead", *lines, *end, *notes]))
    return "\n\n".join(parts) + "\n"


def escaped_latex(text: str) -> str:
    """Return a text with LaTeX's special characters escaped."""
    return "".join(_LATEX.get(mark, mark) for mark in text)


def tabular(tables: Sequence[Shown]) -> str:
    """Return one line for each printed number, with unrounded numbers and each seed's score."""
    return formats.to_csv([_values(row) for table in tables for row in table.rows])


def _values(row: LedgerRow) -> dict[str, Any]:
    """Return the values of a row by column; those of runs are empty if there are none."""
    cell, experiment = row.cell, row.experiment
    values: dict[str, Any] = {"paper": experiment.paper, "table": experiment.table, **cell.place}
    values |= {"value": cell.value, "std": cell.std, "released": cell.released}
    values |= {"costs": dict(cell.costs), "ranks": list(experiment.ranks.get(cell.key, ()))}
    values |= {"statistic": experiment.statistic, "seeds": list(experiment.seeds)}
    values["precision"] = experiment.precision_of(cell)
    for protocol, ours in row.runs.items():
        parts = asdict(ours) if ours else dict.fromkeys(field.name for field in fields(Ours))
        values |= {f"ours_{protocol}_{name}": part for name, part in parts.items()}
    values |= asdict(row.gap) if row.gap else dict.fromkeys(f.name for f in fields(Interval))
    values |= {"verdict": row.verdict, "why": row.why, "note": experiment.note(cell)}
    return values | {"variants": "; ".join(row.variants)}


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
                seeds = seeds_text(ours, experiment.under(protocol))
                cells |= {"Protocol": protocol, "Seeds": seeds}
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
    """Return the claims of papers, by their printed names; notes say how they were measured."""
    file = resources.files("ptrun.papers").joinpath("claims.json")
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    rows: list[dict[str, str | Cell]] = []
    for claim in (one for one in content["claims"] if one["paper"] in papers):
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
    checked = (one["text"] for one in content["checked"] if {*one["papers"]} & {*papers})
    notes = [content["measured"], *checked] if rows else []
    return Table(rows, ("Claim", "First", "Second", "Verdict"), notes=notes)
