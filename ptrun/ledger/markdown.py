"""The ledger as Markdown: a section for each table, reasons and commands in full."""

from collections.abc import Sequence

from ptrun.ledger.columns import columns
from ptrun.ledger.shown import Line, Shown, count_text, total


def markdown(tables: Sequence[Shown]) -> str:
    """Return the whole file."""
    head = ["# Ledger", "", f"{count_text(total(tables))}.", ""]
    return "\n".join([*head, *(line for table in tables for line in section(table))])


def section(table: Shown) -> list[str]:
    """Return the lines of a table, an empty one last."""
    experiment = table.experiment
    names = [name for name, _ in columns(table)]
    count = len(table.axes)
    rows = [[read(line) for _, read in columns(table)] for line in table.lines]
    return [
        f"## {table.heading}",
        "",
        f"{_escaped(experiment.title)}. {_escaped(table.fixed)}".rstrip(". ") + ".",
        "",
        f"Source: {_escaped(experiment.source)}.",
        f"Protocol: {_escaped(experiment.protocol.rstrip('. '))}.",
        f"A number is {table.reported}; the difference to the paper has a 95 % interval.",
        *([f"Cost: {_escaped(experiment.hours)}."] if experiment.hours else []),
        "",
        _row([*names, "Verdict"]),
        _row(["---"] * count + ["---:"] * (len(names) - count) + ["---"]),
        *(_row([*map(_escaped, own), _verdict(line)]) for own, line in _zip(rows, table.lines)),
        "",
        *(
            part
            for mark, note in table.notes.items()
            for part in (f"({mark}) {_escaped(note)}.", "")
        ),
    ]


def _zip(rows: list[list[str]], lines: Sequence[Line]) -> list[tuple[list[str], Line]]:
    return list(zip(rows, lines, strict=True))


def _verdict(line: Line) -> str:
    if line.runs:
        return f"{line.row.verdict}: `{line.why}`"
    return _escaped(line.said)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escaped(text: str) -> str:
    for mark in "\\|*_`<":
        text = text.replace(mark, f"\\{mark}")
    return " ".join(text.split())
