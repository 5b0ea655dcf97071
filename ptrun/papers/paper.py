"""`ptrun report --paper NAME`: every printed number beside ours, printed or written to files."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from ptrun.errors import UserError, unknown
from ptrun.files import below, write_text
from ptrun.papers import charts
from ptrun.papers import experiment as experiments
from ptrun.papers.ours import Interval, Ours
from ptrun.papers.page import page
from ptrun.papers.rows import LedgerRow, rows
from ptrun.papers.shown import PAPERS, Shown, count_text
from ptrun.reporting import formats


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
    values |= {"statistic": experiment.statistic, "seeds": list(experiment.seeds)}
    values["precision"] = experiment.precision_of(cell)
    for protocol, ours in row.runs.items():
        parts = asdict(ours) if ours else dict.fromkeys(field.name for field in fields(Ours))
        values |= {f"ours_{protocol}_{name}": part for name, part in parts.items()}
    values |= asdict(row.gap) if row.gap else dict.fromkeys(f.name for f in fields(Interval))
    values |= {"verdict": row.verdict, "why": row.why, "note": experiment.note(cell)}
    return values | {"variants": "; ".join(row.variants)}
