"""The ledger on the terminal: tables with their reasons below, verdicts counted at the end."""

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ptrun.ledger.columns import columns
from ptrun.ledger.shown import Line, Shown, count_text, total

_STYLES = {
    "within": "green",
    "above": "cyan",
    "below": "yellow",
    "not comparable": "magenta",
    "not run": "dim",
}


def terminal(tables: Sequence[Shown]) -> Group:
    """Return what to print."""
    parts: list[RenderableType] = [part for table in tables for part in _parts(table)]
    return Group(*parts, f"{count_text(total(tables))}.")


def _parts(table: Shown) -> Iterator[RenderableType]:
    """Yield a table between its title and its notes, which may be wider."""
    title = f"{table.heading}: {table.experiment.title}"
    title += f" ({table.fixed})" if table.fixed else ""
    yield Text(title, style="bold")
    reasons = table.reasons()
    yield _table(table, reasons)
    for note in _notes(table, reasons):
        yield Text(note, style="dim")
    yield ""


def _table(table: Shown, reasons: dict[str, int]) -> Table:
    found = [c for c in columns(table) if c[0] in map(str.capitalize, table.axes) or _any(table, c)]
    shown = Table()
    for index, (name, _) in enumerate(found):
        shown.add_column(name, justify="left" if index < len(table.axes) else "right")
    shown.add_column("Verdict")
    for line in table.lines:
        shown.add_row(*(escape(read(line)) for _, read in found), _verdict(line, reasons))
    return shown


def _any(table: Shown, column: tuple[str, object]) -> bool:
    """Return whether a column has anything to tell: without runs most have not."""
    ran = any(line.row.paper for line in table.lines), any(line.row.honest for line in table.lines)
    needed = {"Paper": True, "Released": True, "Ours (paper)": ran[0], "Ours (honest)": ran[1]}
    return needed.get(column[0], any(ran))


def _verdict(line: Line, reasons: dict[str, int]) -> Text:
    mark = reasons.get(line.why or "")
    told = line.row.verdict + (f" ({mark})" if mark else "")
    return Text(told, style=_STYLES[line.row.verdict])


def _notes(table: Shown, reasons: dict[str, int]) -> list[str]:
    notes = [f"({mark}) {note}" for mark, note in table.notes.items()]
    notes += [f"({number}) {why}" for why, number in reasons.items()]
    open_ = [line.why for line in table.lines if line.runs and line.why]
    if open_:
        notes.append(f"not run yet: ptrun experiment={table.experiment.name}")
        notes.append(f"one cell alone: {open_[0]}")
    meaning = f"{table.reported} ± deviation (n - 1); difference to the paper [95 % interval]"
    return [*notes, meaning]
