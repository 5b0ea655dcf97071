"""The ledger as Markdown: one section for each table, with reasons and commands."""

from collections.abc import Sequence

from ptrun.ledger.columns import columns
from ptrun.ledger.shown import Line, Shown, count_text, total


def markdown(tables: Sequence[Shown]) -> str:
    """Return the content of the file."""
    head = ["# Ledger", "", f"{count_text(total(tables))}.", ""]
    return "\n".join([*head, *(line for table in tables for line in _section(table))])


def _section(table: Shown) -> list[str]:
    """Return the lines of a table; the last one is empty."""
    experiment, shown = table.experiment, columns(table)
    names = [name for name, _ in shown]
    count = len(table.axes)
    rows = [[*(_escaped(read(line)) for _, read in shown), _verdict(line)] for line in table.lines]
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
        _row([*names, "Verdict"]),
        _row(["---"] * count + ["---:"] * (len(names) - count) + ["---"]),
        *map(_row, rows),
        "",
        *(line for note in notes for line in (note, "")),
        *(f"- {_escaped(variant)}." for variant in table.variants()),
        *([""] if table.variants() else []),
    ]


def _verdict(line: Line) -> str:
    if line.runs:
        return f"{line.row.verdict}: `{line.why}`"
    return _escaped(line.row.verdict + (f": {line.why}" if line.why else ""))


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escaped(text: str) -> str:
    text = text.replace("](", "] (")  # no link
    for mark in "\\|*_`<":
        text = text.replace(mark, f"\\{mark}")
    return " ".join(text.split())
