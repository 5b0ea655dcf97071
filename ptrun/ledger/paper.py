"""`ptrun report --paper NAME`: every printed number beside ours, printed or written to files."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import RenderableType
from rich.text import Text

from ptrun.config.suggest import unknown
from ptrun.drawing import png, svg
from ptrun.drawing.canvas import Canvas
from ptrun.errors import UserError
from ptrun.files import below, write_text
from ptrun.ledger import experiment as experiments
from ptrun.ledger.latex import latex
from ptrun.ledger.markdown import markdown
from ptrun.ledger.page.page import page
from ptrun.ledger.plots import plots
from ptrun.ledger.rows import rows
from ptrun.ledger.shown import PAPERS, Shown, count_text, shown, total
from ptrun.ledger.tabular import tabular
from ptrun.ledger.terminal import terminal


def report(paper: str, table: str | None, outputs: Path, to: Path | None) -> RenderableType:
    """Return what to print: the tables of a paper, or with `to` the names of the files written.

    Raises:
        UserError: a paper, table or folder is unknown, or nothing can be written there.
    """
    outputs = outputs.expanduser()
    if outputs != Path("outputs") and not outputs.is_dir():
        raise UserError(f"report --outputs {outputs}: no such folder.")
    found = [experiments.load(name) for name in _names(paper, table)]
    tables = [shown(own, rows(own, outputs)) for own in found]
    if to is None:
        return terminal(tables)
    folder = to.expanduser()
    try:
        files = write(tables, folder)
    except OSError as error:
        raise UserError(f"report --to {to}: cannot be written: {error.strerror}.") from error
    hint = "" if png.possible() else "\nFor PNG files too: pip install 'ptrun[figures]'"
    return Text(f"{count_text(total(tables))}.\n{_listed(folder, files)}{hint}")


def write(tables: Sequence[Shown], folder: Path) -> list[str]:
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
    return [*texts, *_figures(drawings, below(folder, "figures"))]


def _figures(drawings: Mapping[str, Mapping[str, Canvas]], folder: Path) -> list[str]:
    """Write the drawings as SVG, and as PNG if possible."""
    names = []
    for table, kinds in drawings.items():
        for kind, canvas in kinds.items():
            file = folder / f"{table.replace('/', '-')}-{kind}.svg"
            folder.mkdir(exist_ok=True)
            write_text(file, svg.file(canvas))
            names.append(f"figures/{file.name}")
            if png.possible():
                png.write(canvas, file.with_suffix(".png"))
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
