"""One table as text: on the terminal by `rich`, as CSV, Markdown, LaTeX and HTML."""

import csv
import io
import json
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from ptrun.errors import readable
from ptrun.files import safe

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

MINUS, NONE = "\N{MINUS SIGN}", "\N{EN DASH}"


@dataclass(frozen=True)
class Cell:
    """A text of a table, and its colour, of those that the terminal has."""

    text: str
    style: str = ""

    def __str__(self) -> str:
        """Return the text."""
        return self.text


@dataclass(frozen=True)
class Table:
    """Rows of cells by column, the same columns in each row.

    Args:
        rows: a text or a cell for each column.
        words: the columns that stand on the left; the others have numbers and stand on the right.
        names: those of them that name a row.
        title: a line above.
        notes: lines below.
    """

    rows: Sequence[Mapping[str, str | Cell]]
    words: Collection[str]
    names: Collection[str] = ()
    title: str = ""
    notes: Sequence[str] = ()

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self.rows[0]) if self.rows else []

    @property
    def cells(self) -> list[list[Cell]]:
        """The rows as cells."""
        return [
            [cell if isinstance(cell, Cell) else Cell(cell) for cell in row.values()]
            for row in self.rows
        ]

    def __rich_console__(
        self, console: "Console", options: "ConsoleOptions"
    ) -> "Iterator[RenderableType]":
        """Yield the table in a form that fits the width: whole, without equal columns, or stacked.

        No text is cut. Columns are aligned here, because the library takes milliseconds a row.
        """
        from rich.cells import cell_len
        from rich.text import Text

        lines = [[Cell(name, "bold") for name in self.columns], *self.cells]
        columns = dict(zip(self.columns, zip(*lines, strict=True), strict=True))
        widths = {name: max(cell_len(cell.text) for cell in columns[name]) for name in columns}

        # What all rows have in common is said once, where the whole table is too wide.
        equal = {}
        for name, (_, *cells) in columns.items():
            texts = {cell.text for cell in cells}
            if texts == {""} or (len(texts) == 1 and {name} & {*self.words} - {*self.names}):
                equal[name] = texts.pop()
        for said in ({}, equal):
            shown = [name for name in columns if name not in said]
            fits = sum(widths[name] + 2 for name in shown) - 2 <= options.max_width
            if fits:
                break
        common = " · ".join(f"{name} {text}" for name, text in said.items() if text)
        yield Text("\n".join(filter(None, [self.title, common])), "bold", overflow="fold")

        printed = []
        for line in lines if fits else lines[1:]:
            row = {n: cell for n, cell in zip(columns, line, strict=True) if n in shown}
            text = Text()
            if fits:
                for name, cell in row.items():
                    blank = " " * (widths[name] - cell_len(cell.text))
                    aligned = cell.text + blank if name in self.words else blank + cell.text
                    text.append(aligned, cell.style).append("  ")
                text.rstrip()
            else:  # two lines for a row: its words, then its numbers
                words = (cell.text for name, cell in row.items() if name in self.words)
                numbers = {n: c.text for n, c in row.items() if n not in self.words}
                told = (
                    f"{n} {number}" for n, number in numbers.items() if number not in ("", NONE)
                )
                text.append(" · ".join(filter(None, words)), "bold")
                text.append("\n    " + " · ".join(told))
            printed.append(text)
        yield Text("\n", overflow="fold").join(printed)
        for note in self.notes:
            yield Text(note, "dim", overflow="fold")


def show(content: "RenderableType") -> None:
    """Print a table in the width of the terminal; a file or pipe has lines whole, tables in 200."""
    from rich.console import Console

    terminal = sys.stdout.isatty()
    Console(width=None if terminal else 200).print(content, soft_wrap=not terminal)


def to_csv(rows: Sequence[Mapping[str, Any]], *, raw: bool = False) -> str:
    r"""Return values as CSV with a header: lists as JSON, None as an empty cell; lines end in `\n`.

    A text that a spreadsheet would run as a formula begins with an apostrophe, unless `raw`.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    header = list(rows[0]) if rows else []
    for cells in (header, *(row.values() for row in rows)):
        plain = (json.dumps(cell) if isinstance(cell, list | dict) else cell for cell in cells)
        writer.writerow(plain if raw else map(safe, plain))
    return text.getvalue()


def markdown(table: Table) -> str:
    """Return the rows and then the notes as Markdown."""
    rules = ["---" if name in table.words else "---:" for name in table.columns]
    lines = [[escaped_markdown(name) for name in table.columns], rules]
    for cells in table.cells:
        lines.append([escaped_markdown(cell.text) for cell in cells])
    notes = ["", *map(escaped_markdown, table.notes)] if table.notes else []
    return "\n".join([*(f"| {' | '.join(cells)} |" for cells in lines), *notes])


def escaped_markdown(text: str) -> str:
    """Return text that is no markup in Markdown, on one line; `_` within a word is none."""
    marks = r"[\\|*`<~]|(?<!\w)_|_(?!\w)|(?<=\])\(|&(?=#?\w)"
    return " ".join(re.sub(marks, r"\\\g<0>", text).split())


def html(table: Table) -> str:
    """Return the table with its notes below as HTML; all texts are escaped."""
    sides = ["" if name in table.words else ' align="right"' for name in table.columns]
    lines = [("th", table.columns), *(("td", map(str, row.values())) for row in table.rows)]
    rows = []
    for tag, texts in lines:
        cells = zip(sides, texts, strict=True)
        rows.append("".join(f"<{tag}{side}>{escape(text)}</{tag}>" for side, text in cells))
    body = "\n".join(f"<tr>{row}</tr>" for row in rows)
    return "\n".join([f"<table>\n{body}\n</table>", *(f"<p>{escape(n)}</p>" for n in table.notes)])


_HEAD = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; font: 0.875rem/1.5 system-ui, sans-serif; }}
section {{ margin-top: 3rem; overflow-x: auto; }}
p, li, dl {{ max-width: 60rem; }}
img {{ max-width: 100%; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; }}
th, td {{ padding: 0.3rem 0.8rem 0.3rem 0; border-bottom: 1px solid #8888; text-align: left; }}
[align] {{ text-align: right; white-space: nowrap; }}
dt {{ opacity: 0.7; }}
dd {{ margin: 0 0 0.5rem; white-space: pre-wrap; overflow-wrap: anywhere; }}
polyline {{ fill: none; stroke: #3b7dd8; stroke-width: 2; vector-effect: non-scaling-stroke; }}
svg {{ display: block; width: 100%; height: 7rem; border-bottom: 1px solid #8888; }}
</style>"""


def page_head(title: str) -> str:
    """Return the beginning of an HTML file that needs no other, in light and dark."""
    return _HEAD.format(title=escape(readable(title)))
