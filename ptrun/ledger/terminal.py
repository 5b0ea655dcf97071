"""The ledger on the terminal: each table with its reasons below, then the verdict counts."""

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ptrun.ledger.columns import columns
from ptrun.ledger.shown import Line, Shown, count_text, total

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
    yield _table(table, reasons)
    for note in _notes(table, reasons):
        yield Text(note, style="dim")
    yield ""


def _table(table: Shown, reasons: dict[str, int]) -> Table:
    count, empty = len(table.axes), _empty(table)
    found = [c for index, c in enumerate(columns(table)) if index < count or c[0] not in empty]
    shown = Table()
    for index, (name, _) in enumerate(found):
        shown.add_column(name, justify="left" if index < count else "right")
    shown.add_column("Verdict")
    for line in table.lines:
        shown.add_row(*(escape(read(line)) for _, read in found), _verdict(line, reasons))
    return shown


def _empty(table: Shown) -> set[str]:
    """Return the columns that no run fills."""
    paper = any(line.row.paper for line in table.lines)
    honest = any(line.row.honest for line in table.lines)
    empty = set() if paper else {"Ours (paper)"}
    empty |= set() if honest else {"Ours (honest)"}
    return empty if paper or honest else {*empty, "Difference", "Seeds", "Learned", "Cost"}


def _verdict(line: Line, reasons: dict[str, int]) -> Text:
    mark = reasons.get(line.why or "")
    text = line.row.verdict + (f" ({mark})" if mark else "")
    return Text(text, style=_STYLES[line.row.verdict])


def _notes(table: Shown, reasons: dict[str, int]) -> list[str]:
    notes = [f"({mark}) {note}" for mark, note in table.notes.items()]
    notes += [f"({number}) {why}" for why, number in reasons.items()]
    commands = [line.why for line in table.lines if line.runs and line.why]
    if commands:
        notes.append(f"not run yet: ptrun experiment={table.experiment.name}")
        notes.append(f"one cell alone: {commands[0]}")
    variants = table.variants()
    notes += variants[:_MOST_VARIANTS]
    if len(variants) > _MOST_VARIANTS:
        notes.append(f"{len(variants) - _MOST_VARIANTS} more variants: see --to FOLDER")
    divisor = "n - 1" if table.experiment.ddof else "n"
    meaning = f"{table.reported} ± standard deviation ({divisor}), in {table.precision}"
    return [*notes, f"{meaning}; difference to the paper [95 % interval]"]
