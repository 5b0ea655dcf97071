"""`ptrun report --paper NAME`: every printed number beside ours, printed or written to files."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple
from pathlib import Path

from rich.console import Group, RenderableType
from rich.text import Text

from ptrun.errors import UserError, unknown
from ptrun.files import below, write_text
from ptrun.ledger import charts, formats
from ptrun.ledger import experiment as experiments
from ptrun.ledger.experiment import AXES
from ptrun.ledger.formats import Cell, escaped_markdown
from ptrun.ledger.ours import Ours
from ptrun.ledger.page.page import page
from ptrun.ledger.rows import LedgerRow, rows
from ptrun.ledger.shown import PAPERS, STYLES, Shown, ShownRow, count_text, listed, shown, total


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

    `png` writes figures as PNG, too.

    Raises:
        UserError: a paper, table, scale or folder is unknown, or nothing can be written there.
    """
    if png and not charts.possible():
        raise UserError("report --png needs matplotlib: type pip install 'ptrun[figures]'.")
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
    tables = [shown(experiment, rows(experiment, outputs)) for experiment in printed]
    if to is None:
        return terminal(tables)
    folder = to.expanduser()
    try:
        files = write(tables, folder, png=png)
    except OSError as error:
        raise UserError(f"report --to {to}: cannot be written: {error.strerror}.") from error
    return Text(f"{count_text(total(tables))}.\n{_listed(folder, files)}")


def write(tables: Sequence[Shown], folder: Path, *, png: bool = False) -> list[str]:
    """Write all files of a ledger and return their names."""
    folder.mkdir(parents=True, exist_ok=True)
    drawings, figures = _figures(tables, below(folder, "figures"), png=png)
    texts = {
        "index.html": page(tables, drawings),
        "ledger.md": markdown(tables),
        "ledger.csv": tabular(tables),
        "ledger.tex": latex(tables),
    }
    for name, text in texts.items():
        write_text(folder / name, text)
    return [*texts, *figures]


def _figures(
    tables: Sequence[Shown], folder: Path, *, png: bool
) -> tuple[dict[str, dict[str, str]], list[str]]:
    """Write the charts of tables as SVG, and as PNG if asked; none without matplotlib.

    Returns:
        the charts as SVG by the table's and their own name, and the names of the files.
    """
    drawings: dict[str, dict[str, str]] = {}
    names = []
    for table in tables if charts.possible() else ():
        name = table.experiment.name
        for kind, figure in charts.charts(table).items():
            svg = charts.svg(figure, f"{table.heading}: {kind}")
            drawings.setdefault(name, {})[kind] = svg
            file = folder / f"{name.replace('/', '-')}-{kind}.svg"
            folder.mkdir(exist_ok=True)
            write_text(file, svg)
            names.append(f"figures/{file.name}")
            if png:
                charts.write_png(figure, file.with_suffix(".png"))
    return drawings, names


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


def _listed(folder: Path, files: Sequence[str]) -> str:
    texts = [name for name in files if "/" not in name]
    lines = [f"  {folder / name}" for name in texts]
    if count := len(files) - len(texts):
        lines.append(f"  {folder / 'figures'}: {count} drawings")
    if not charts.possible():
        lines.append("  no figures: they need matplotlib, type pip install 'ptrun[figures]'")
    return "\n".join(lines)


# The ledger on the terminal: each table with its reasons below, then the verdict counts.

_MOST_VARIANTS = 8


def terminal(tables: Sequence[Shown]) -> Group:
    """Return what the command prints."""
    parts: list[RenderableType] = [part for table in tables for part in _parts(table)]
    return Group(*parts, f"{count_text(total(tables))}.")


def _parts(table: Shown) -> Iterator[RenderableType]:
    """Yield a title, a table and its notes; the texts may be wider than the table."""
    title = f"{table.heading}: {table.experiment.title}"
    title += f" ({table.fixed})" if table.fixed else ""
    yield Text(title, style="bold")
    verdicts = {line.row.verdict for line in table.lines}
    judged = table.experiment.scale is None or len(verdicts) > 1  # at a scale, none is
    yield formats.terminal(table.table(_marked(table) if judged else None, _empty(table)))
    for note in _notes(table):
        yield Text(note, style="dim")
    yield ""


def _empty(table: Shown) -> set[str]:
    """Return the columns that no run fills."""
    paper = any(line.row.paper for line in table.lines)
    honest = any(line.row.honest for line in table.lines)
    empty = set() if paper else {"Ours (paper)"}
    empty |= set() if honest else {"Ours (honest)"}
    return empty if paper or honest else {*empty, "Difference", "Seeds", "Learned", "Cost"}


def _marked(table: Shown) -> Callable[[ShownRow], Cell]:
    """Return what gives the verdict of a row, with the mark of its reason."""
    reasons = table.reasons()

    def cell(line: ShownRow) -> Cell:
        mark = reasons.get(line.row.why or "")
        text = line.row.verdict + (f" ({mark})" if mark else "")
        return Cell(text, style=STYLES[line.row.verdict])

    return cell


def _remarks(table: Shown) -> list[str]:
    """Return the notes on printed numbers and the reasons of verdicts, with their marks."""
    notes = [f"({mark}) {note}" for mark, note in table.notes.items()]
    return notes + [f"({number}) {why}" for why, number in table.reasons().items()]


def _notes(table: Shown) -> list[str]:
    notes = _remarks(table)
    commands = [line.row.command for line in table.lines if line.row.command]
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


# The ledger as files: Markdown with reasons and commands, and LaTeX to include.


def markdown(tables: Sequence[Shown]) -> str:
    """Return one section for each table."""
    sections = [part for table in tables for part in _section(table)]
    return "\n\n".join(["# Ledger", f"{count_text(total(tables))}.", *sections]) + "\n"


def _section(table: Shown) -> list[str]:
    """Return the paragraphs of a table."""
    experiment = table.experiment
    facts = [
        f"Source: {escaped_markdown(experiment.source)}.",
        f"Protocol: {escaped_markdown(experiment.protocol.rstrip('. '))}.",
        f"A number is {table.reported}; the difference to the paper has a 95 % interval.",
        f"Precision: {table.precision}.",
    ]
    if experiment.hours:
        facts.append(f"Cost: {escaped_markdown(experiment.hours)}.")
    subject = f"{escaped_markdown(experiment.title)}. {escaped_markdown(table.fixed)}"
    paragraphs = [
        f"## {table.heading}",
        subject.rstrip(". ") + ".",
        "\n".join(facts),
        formats.markdown(table.table(lambda line: line.told)),
        *(f"({mark}) {escaped_markdown(note)}." for mark, note in table.notes.items()),
        f"{table.order}." if table.order else "",
        "\n".join(f"- {escaped_markdown(variant)}." for variant in table.variants()),
    ]
    return [paragraph for paragraph in paragraphs if paragraph]


def latex(tables: Sequence[Shown]) -> str:
    """Return one longtable for each table."""
    parts = ["% needs \\usepackage{booktabs,longtable}"]
    for table in tables:
        experiment = table.experiment
        title = f"{table.heading}. {experiment.title}"
        title += f" ({table.fixed})." if table.fixed else "."
        reported = table.reported.capitalize()
        title += f" {reported}; 95 % intervals of the difference; {table.precision}."
        content = table.table(_marked(table), title=title, notes=_remarks(table))
        parts.append(formats.latex(content, f"tab:{experiment.paper}-{experiment.table}"))
    return "\n\n".join(parts) + "\n"


# The ledger as CSV for other programs: unrounded numbers and the score of every seed.


def tabular(tables: Sequence[Shown]) -> str:
    """Return one line for each printed number."""
    return formats.to_csv([_values(line.row) for table in tables for line in table.lines])


def _values(row: LedgerRow) -> dict[str, str]:
    """Return the values of a row by column."""
    cell, experiment, gap = row.cell, row.experiment, row.gap
    values = {"paper": experiment.paper, "table": experiment.table}
    values |= {axis: cell.at[axis] for axis in AXES}
    values["metric"] = cell.metric
    values |= {
        name: _list(listed(printed))
        for name, printed in (("value", cell.value), ("std", cell.std), ("released", cell.released))
    }
    values |= {"statistic": experiment.statistic, "seeds": _list(experiment.seeds)}
    values["precision"] = experiment.precision_of(cell)
    values |= _ours("ours_paper", row.paper) | _ours("ours_honest", row.honest)
    ends = astuple(gap) if gap else (None, None, None)
    values |= dict(zip(("difference", "low", "high"), map(_number, ends), strict=True))
    values |= {"verdict": row.verdict, "why": row.why or "", "note": experiment.note(cell) or ""}
    return values | {"variants": "; ".join(variant.differs for variant in row.variants)}


def _ours(name: str, ours: Ours | None) -> dict[str, str]:
    """Return the values of our runs under one protocol; all are empty if there are none."""
    parts = ("std", "n", "missing", "failed", "searched", "planned", "learned", "hours", "scores")
    names = [name, *(f"{name}_{part}" for part in parts)]
    if ours is None:
        return dict.fromkeys(names, "")
    values = [
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
    return dict(zip(names, values, strict=True))


def _list(values: Sequence[float]) -> str:
    return " ".join(map(str, values))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}".rstrip("0").rstrip(".")
