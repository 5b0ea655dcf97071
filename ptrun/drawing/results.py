"""A table of results: `ptrun report` prints it, `ptrun.report` returns it."""

import csv
import html
import io
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ptrun.drawing.spreadsheet import safe
from ptrun.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

_FIRST = ("task", "method", "differs in")
"""The columns that name a row; the others of the left are said once if they are equal."""
_LEFT = ("task", "method", "backbone", "setting", "protocol", "differs in", "metric")
_UNLIMITED = 10_000  # columns of a terminal
_FOLDED = ("best on dev", "tests by seed")


@dataclass(frozen=True)
class Results:
    """A table of results; iterating yields its rows as dicts.

    It prints in the width of the terminal, and a notebook shows it as HTML.

    Args:
        title: the folder of the results.
        rows: a dict of plain values for each cell. `dev` and `test` are means over seeds, `dev_std`
            and `test_std` sample standard deviations (None for one seed), `n` the number of seeds.
        texts: the same rows as printed text, by column.
        notes: lines below the table.
    """

    title: str
    rows: list[dict[str, Any]]
    texts: list[dict[str, str]]
    notes: list[str]

    @property
    def columns(self) -> list[str]:
        """The keys of a row."""
        return list(self.rows[0]) if self.rows else []

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the rows."""
        return iter(self.rows)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.rows)

    def __str__(self) -> str:
        """Return the printed table, without colours."""
        from rich.console import Console

        width, out = shutil.get_terminal_size((100, 24)).columns, io.StringIO()
        Console(file=out, width=width, color_system=None).print(self)
        return out.getvalue().rstrip("\n")

    __repr__ = __str__

    def __rich_console__(
        self, console: "Console", options: "ConsoleOptions"
    ) -> "Iterator[RenderableType]":
        """Yield the table in a form that fits the width: whole, without equal columns, or stacked.

        Task and method are never cut.
        """
        from rich.measure import Measurement

        names = list(self.texts[0]) if self.texts else []
        equal = {name: self.texts[0][name] for name in names if self._is_equal(name)}
        unlimited = options.update(max_width=_UNLIMITED)
        for said in ({}, equal):
            found = self._table([name for name in names if name not in said], said)
            if Measurement.get(console, unlimited, found).minimum <= options.max_width:
                yield found
                return
        yield from self._stacked(equal)

    def to_pandas(self) -> Any:
        """Return the rows as a `pandas.DataFrame`.

        Raises:
            UserError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            raise UserError("to_pandas needs pandas: type pip install pandas.") from error
        return pandas.DataFrame(self.rows, columns=self.columns)

    def csv(self, *, raw: bool = False) -> str:
        """Return the rows as CSV, with a header; an empty cell is an unknown value.

        A text that a spreadsheet would run as a formula begins with an apostrophe, unless `raw`.
        """
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        every = [self.columns, *([_cell(row[name]) for name in self.columns] for row in self.rows)]
        writer.writerows(every if raw else (map(safe, cells) for cells in every))
        return text.getvalue()

    def markdown(self) -> str:
        """Return the printed columns and the notes as Markdown."""
        names = list(self.texts[0]) if self.texts else []
        lines = [_line(names), _line(["---" if name in _LEFT else "---:" for name in names])]
        lines += [_line([own[name] for name in names]) for own in self.texts]
        return "\n".join([*lines, "", *self.notes, ""])

    def _repr_html_(self) -> str:
        names = list(self.texts[0]) if self.texts else []
        head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
        body = "".join(f"<tr>{_html_cells(own)}</tr>" for own in self.texts)
        notes = "<br>".join(html.escape(note) for note in self.notes)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><p>{notes}</p>"

    def _is_equal(self, name: str) -> bool:
        """Return whether a column of names has one value."""
        return (name in _LEFT and name not in _FIRST and len(self._values(name)) == 1) or (
            name in ("differs in", "failed") and self._values(name) == {""}
        )

    def _values(self, name: str) -> set[str]:
        return {own[name] for own in self.texts}

    def _table(self, names: Sequence[str], said: Mapping[str, str]) -> "RenderableType":
        from rich.markup import escape
        from rich.table import Table

        title = "\n".join([self.title, *_said(said)])
        shown = Table(title=escape(title), title_justify="left", caption_justify="left")
        shown.caption = escape("\n".join(self.notes))
        for name in names:
            right = name not in _LEFT
            fixed = right and name not in _FOLDED
            justify = "right" if right else "left"
            shown.add_column(name, justify=justify, no_wrap=fixed, overflow="fold")  # type: ignore[arg-type]
        for own in self.texts:
            shown.add_row(*(escape(own[name]) for name in names))
        return shown

    def _stacked(self, said: Mapping[str, str]) -> "Iterator[RenderableType]":
        """Yield two lines for each row: its names, then its numbers."""
        from rich.padding import Padding
        from rich.text import Text

        yield Text("\n".join([self.title, *_said(said)]), style="italic", overflow="fold")
        for own in self.texts:
            left = [own[n] for n in _LEFT if n in own and n not in said and own[n]]
            yield Text(" · ".join(left), style="bold", overflow="fold")
            numbers = [f"{n} {v}" for n, v in own.items() if n not in _LEFT and v]
            yield Padding(Text(" · ".join(numbers), overflow="fold"), (0, 0, 0, 4))
        yield Text("\n".join(self.notes), style="dim", overflow="fold")


def _said(equal: Mapping[str, str]) -> list[str]:
    """Return a line with what all rows have in common."""
    parts = [f"{name} {value}" for name, value in equal.items() if value]
    return [" · ".join(parts)] if parts else []


def _cell(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list) else value


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_escaped, cells))} |"


def _escaped(text: str) -> str:
    """Return text that is no markup in Markdown, on one line."""
    for mark in "&<>|[`":
        text = text.replace(mark, f"&#{ord(mark)};")
    return " ".join(text.split())


def _html_cells(own: Mapping[str, str]) -> str:
    return "".join(
        f'<td style="text-align:{"left" if name in _LEFT else "right"}">{html.escape(value)}</td>'
        for name, value in own.items()
    )
