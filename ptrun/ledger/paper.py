"""`ptrun report --paper NAME`: every printed number beside ours, printed or written to files."""

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple
from pathlib import Path

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ptrun.errors import UserError, unknown
from ptrun.files import below, safe, write_text
from ptrun.ledger import experiment as experiments
from ptrun.ledger.experiment import AXES, Experiment
from ptrun.ledger.ours import Ours
from ptrun.ledger.page.page import page
from ptrun.ledger.plots import Canvas, plots, png_possible, svg_file, write_png
from ptrun.ledger.rows import rows
from ptrun.ledger.shown import (
    MINUS,
    NONE,
    PAPERS,
    Shown,
    ShownRow,
    columns,
    count_text,
    listed,
    shown,
    total,
)


def report(
    paper: str,
    table: str | None,
    outputs: Path,
    to: Path | None,
    scale: str | None = None,
    *,
    png: bool = False,
) -> RenderableType:
    """Return what to print: the tables of a paper, or with `to` the names of the files written.

    `png` writes figures as PNG, too, which takes a third of a second each.

    Raises:
        UserError: a paper, table, scale or folder is unknown, or nothing can be written there.
    """
    if png and not png_possible():
        raise UserError("report --png needs matplotlib: type pip install 'ptrun[figures]'.")
    outputs = outputs.expanduser()
    if outputs != Path("outputs") and not outputs.is_dir():
        raise UserError(f"report --outputs {outputs}: no such folder.")
    found = [experiments.load(name) for name in _names(paper, table)]
    found = _at(scale, found) if scale else found
    tables = [shown(own, rows(own, outputs)) for own in found]
    if to is None:
        return terminal(tables)
    folder = to.expanduser()
    try:
        files = write(tables, folder, png=png)
    except OSError as error:
        raise UserError(f"report --to {to}: cannot be written: {error.strerror}.") from error
    return Text(f"{count_text(total(tables))}.\n{_listed(folder, files)}")


def _at(scale: str, found: Sequence[Experiment]) -> list[Experiment]:
    """Return those tables that a scale fills, at that scale."""
    kept = [own.at(scale) for own in found if own.pocket]
    if not kept:
        filled = [name for name in experiments.names() if experiments.load(name).pocket]
        raise UserError(
            f"{found[0].name} has only a smoke test at {scale} scale.\n"
            f"Tables with rows: {', '.join(filled)}."
        )
    return kept


def write(tables: Sequence[Shown], folder: Path, *, png: bool = False) -> list[str]:
    """Write all files of a ledger and return their names."""
    drawings = {table.experiment.name: plots(table) for table in tables}
    texts = {
        "index.html": page(tables, drawings),
        "ledger.md": markdown(tables),
        "ledger.csv": tabular(tables),
        "ledger.tex": latex(tables),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        write_text(folder / name, text)
    return [*texts, *_figures(drawings, below(folder, "figures"), png=png)]


def _figures(drawings: Mapping[str, Mapping[str, Canvas]], folder: Path, *, png: bool) -> list[str]:
    """Write the drawings as SVG, and as PNG if asked."""
    names = []
    for table, kinds in drawings.items():
        for kind, canvas in kinds.items():
            file = folder / f"{table.replace('/', '-')}-{kind}.svg"
            folder.mkdir(exist_ok=True)
            write_text(file, svg_file(canvas))
            names.append(f"figures/{file.name}")
            if png:
                write_png(canvas, file.with_suffix(".png"))
    return names


def _names(paper: str, table: str | None) -> list[str]:
    """Return the names of the selected experiments, in the order of the report."""
    known = [(own, name) for own, _, name in (n.partition("/") for n in experiments.names())]
    papers = {own for own, _ in known} | {"all"}
    if paper not in papers:
        raise UserError(unknown(f"report --paper {paper}", paper, papers))
    of_paper = [(own, name) for own, name in known if paper in ("all", own)]
    tables = {name for _, name in of_paper}
    if table is not None and table not in tables:
        raise UserError(unknown(f"report --table {table}", table, tables))
    of_paper.sort(key=_rank)
    return [f"{own}/{name}" for own, name in of_paper if table in (None, name)]


def _rank(name: tuple[str, str]) -> tuple[int, int, list[str | int]]:
    """Return a sort key: papers in their usual order, tables before figures, 10 after 9."""
    paper, table = name
    order = [*PAPERS, paper]
    kind = 0 if table.startswith("table") else 2 if table.startswith("figure") else 1
    parts = re.split(r"(\d+)", table)
    return order.index(paper), kind, [int(part) if part.isdigit() else part for part in parts]


def _listed(folder: Path, files: Sequence[str]) -> str:
    texts = [name for name in files if "/" not in name]
    lines = [f"  {folder / name}" for name in texts]
    if count := len(files) - len(texts):
        lines.append(f"  {folder / 'figures'}: {count} drawings")
    return "\n".join(lines)


# The ledger on the terminal: each table with its reasons below, then the verdict counts.

_MOST_VARIANTS = 8
_STYLES = {
    "within": "green",
    "above": "cyan",
    "below": "yellow",
    "not final": "blue",
    "not comparable": "magenta",
    "not run": "dim",
}


def terminal(tables: Sequence[Shown]) -> Group:
    """Return what the command prints."""
    parts: list[RenderableType] = [part for table in tables for part in _parts(table)]
    return Group(*parts, f"{count_text(total(tables))}.")


def _parts(table: Shown) -> Iterator[RenderableType]:
    """Yield a title, a table and its notes; the texts may be wider than the table."""
    title = f"{table.heading}: {table.experiment.title}"
    title += f" ({table.fixed})" if table.fixed else ""
    yield Text(title, style="bold")
    reasons = table.reasons()
    yield _rich_table(table, reasons)
    for note in _notes(table, reasons):
        yield Text(note, style="dim")
    yield ""


def _rich_table(table: Shown, reasons: dict[str, int]) -> Table:
    count, empty = len(table.axes), _empty(table)
    found = [c for index, c in enumerate(columns(table)) if index < count or c[0] not in empty]
    shown = Table()
    for index, (name, _) in enumerate(found):
        shown.add_column(name, justify="left" if index < count else "right")
    verdicts = {line.row.verdict for line in table.lines}
    judged = table.experiment.scale is None or len(verdicts) > 1  # at a scale, none is
    if judged:
        shown.add_column("Verdict")
    for line in table.lines:
        last = [_styled_verdict(line, reasons)] if judged else []
        shown.add_row(*(escape(read(line)) for _, read in found), *last)
    return shown


def _empty(table: Shown) -> set[str]:
    """Return the columns that no run fills."""
    paper = any(line.row.paper for line in table.lines)
    honest = any(line.row.honest for line in table.lines)
    empty = set() if paper else {"Ours (paper)"}
    empty |= set() if honest else {"Ours (honest)"}
    return empty if paper or honest else {*empty, "Difference", "Seeds", "Learned", "Cost"}


def _styled_verdict(line: ShownRow, reasons: dict[str, int]) -> Text:
    mark = reasons.get(line.why or "")
    text = line.row.verdict + (f" ({mark})" if mark else "")
    return Text(text, style=_STYLES[line.row.verdict])


def _notes(table: Shown, reasons: dict[str, int]) -> list[str]:
    notes = [f"({mark}) {note}" for mark, note in table.notes.items()]
    notes += [f"({number}) {why}" for why, number in reasons.items()]
    commands = [line.why for line in table.lines if line.runs and line.why]
    if commands:
        scale = f" +scale={table.experiment.scale}" if table.experiment.scale else ""
        notes.append(f"not run yet: ptrun experiment={table.experiment.name}{scale}")
        notes.append(f"one cell alone: {commands[0]}")
    variants = table.variants()
    notes += variants[:_MOST_VARIANTS]
    if len(variants) > _MOST_VARIANTS:
        notes.append(f"{len(variants) - _MOST_VARIANTS} more variants: see --to FOLDER")
    divisor = "n - 1" if table.experiment.ddof else "n"
    meaning = f"{table.reported} ± standard deviation ({divisor}), in {table.precision}"
    if table.order:
        return [*notes, meaning, table.order]
    return [*notes, f"{meaning}; difference to the paper [95 % interval]"]


# The ledger as Markdown: one section for each table, with reasons and commands.


def markdown(tables: Sequence[Shown]) -> str:
    """Return the content of the file."""
    head = ["# Ledger", "", f"{count_text(total(tables))}.", ""]
    return "\n".join([*head, *(line for table in tables for line in _section(table))])


def _section(table: Shown) -> list[str]:
    """Return the lines of a table; the last one is empty."""
    experiment, shown = table.experiment, columns(table)
    names = [name for name, _ in shown]
    count = len(table.axes)
    rows = [
        [*(_escaped(read(line)) for _, read in shown), _told_verdict(line)] for line in table.lines
    ]
    notes = [f"({mark}) {_escaped(note)}." for mark, note in table.notes.items()]
    return [
        f"## {table.heading}",
        "",
        f"{_escaped(experiment.title)}. {_escaped(table.fixed)}".rstrip(". ") + ".",
        "",
        f"Source: {_escaped(experiment.source)}.",
        f"Protocol: {_escaped(experiment.protocol.rstrip('. '))}.",
        f"A number is {table.reported}; the difference to the paper has a 95 % interval.",
        f"Precision: {table.precision}.",
        *([f"Cost: {_escaped(experiment.hours)}."] if experiment.hours else []),
        "",
        _piped([*names, "Verdict"]),
        _piped(["---"] * count + ["---:"] * (len(names) - count) + ["---"]),
        *map(_piped, rows),
        "",
        *(line for note in notes for line in (note, "")),
        *([f"{table.order}.", ""] if table.order else []),
        *(f"- {_escaped(variant)}." for variant in table.variants()),
        *([""] if table.variants() else []),
    ]


def _told_verdict(line: ShownRow) -> str:
    if line.runs:
        return f"{line.row.verdict}: `{line.why}`"
    return _escaped(line.row.verdict + (f": {line.why}" if line.why else ""))


def _piped(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escaped(text: str) -> str:
    text = text.replace("](", "] (")  # no link
    for mark in "\\|*_`<":
        text = text.replace(mark, f"\\{mark}")
    return " ".join(text.split())


# The ledger as LaTeX to include: one longtable each. Needs booktabs and longtable.

_SPECIAL = {
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
    MINUS: r"\ensuremath{-}",
    NONE: "--",
}


def latex(tables: Sequence[Shown]) -> str:
    """Return the content of the file."""
    head = "% needs \\usepackage{booktabs,longtable}"
    return "\n".join([head, *(line for table in tables for line in _longtable(table)), ""])


def _longtable(table: Shown) -> list[str]:
    shown = columns(table)
    names = [name for name, _ in shown]
    form = "l" * len(table.axes) + "r" * (len(names) - len(table.axes)) + "l"
    experiment, reasons = table.experiment, table.reasons()
    caption = f"{table.heading}. {experiment.title}"
    caption += f" ({table.fixed})." if table.fixed else "."
    caption += (
        f" {table.reported.capitalize()}; 95 % intervals of the difference; {table.precision}."
    )
    label = f"tab:{experiment.paper}-{experiment.table}"
    return [
        "",
        f"\\begin{{longtable}}{{{form}}}",
        f"\\caption{{{escaped(caption)}}}\\label{{{label}}}\\\\",
        r"\toprule",
        " & ".join(map(escaped, [*names, "Verdict"])) + r" \\",
        r"\midrule",
        r"\endhead",
        *(
            " & ".join(
                [*(escaped(read(line)) for _, read in shown), _marked_verdict(line, reasons)]
            )
            + r" \\"
            for line in table.lines
        ),
        r"\bottomrule",
        r"\end{longtable}",
        *(rf"\noindent ({mark}) {escaped(note)}\par" for mark, note in table.notes.items()),
        *(rf"\noindent\textsuperscript{{{n}}} {escaped(why)}\par" for why, n in reasons.items()),
    ]


def _marked_verdict(line: ShownRow, reasons: dict[str, int]) -> str:
    mark = reasons.get(line.why or "")
    return line.row.verdict + (rf"\textsuperscript{{{mark}}}" if mark else "")


def escaped(text: str) -> str:
    """Return a text with LaTeX's special characters escaped."""
    return "".join(_SPECIAL.get(mark, mark) for mark in text)


# The ledger as CSV for other programs: unrounded numbers and the score of every seed.

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
    writer.writerows(map(safe, _cells_of(line)) for table in tables for line in table.lines)
    return text.getvalue()


def _cells_of(line: ShownRow) -> list[str]:
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
