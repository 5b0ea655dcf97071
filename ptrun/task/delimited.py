"""CSV and TSV files, read row by row; every error has a line number.

The separator of a CSV is `,`, `;` or tab, whichever is most frequent in its first line. Lines are
counted as in an editor, and a row that spans several lines is named by its first line. Rows with
empty cells only are skipped. A cell in double quotes may contain the separator and line breaks;
with quoting `none` a quote is a character like any other, as in GLUE's files.
"""

import csv
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Literal

from ptrun.errors import UserError
from ptrun.task.lines import LONGEST, text_lines
from ptrun.task.shown import names, shown
from ptrun.task.source import Row

csv.field_size_limit(LONGEST)  # Python's own limit is shorter than a long document
Quoting = Literal["none"] | None
"""Whether quotes are plain text; None: they enclose cells."""


def header(where: str, cells: list[str]) -> list[str]:
    """Return the column names from the cells of the first row.

    Raises:
        UserError: two columns have the same name.
    """
    columns = [cell.strip() for cell in cells]
    for name in columns:
        if name and columns.count(name) > 1:
            raise UserError(f"{where}: column {shown(name)} appears twice; rename one.")
    return columns


def delimited_rows(file: Path, form: str, quoting: Quoting = None) -> Iterator[Row]:
    """Yield the rows below the header; `form` is `.csv` or `.tsv`.

    Raises:
        UserError: a row cannot be read, or does not fit the header.
    """
    below = records(file, form, quoting)
    columns = header(*next(below))
    for where, cells in below:
        if len(cells) != len(columns):
            raise UserError(
                f"{where}: {len(cells)} cells, the header has {len(columns)}: {names(columns)}\n"
                'Put a text with the separator or a line break in double quotes: "a, b".'
            )
        if any(cell.strip() for cell in cells):
            yield Row(where, {n: c for n, c in zip(columns, cells, strict=True) if n})


def records(file: Path, form: str, quoting: Quoting = None) -> Iterator[tuple[str, list[str]]]:
    """Yield `file:line` and the cells of each row; blank lines are skipped.

    Raises:
        UserError: a line is not UTF-8, or a quote is not closed.
    """
    lines = _texts(file)
    top = list(_until_filled(lines))
    separator = "\t" if form == ".tsv" else _separator(top[-1] if top else "")
    every = chain(top, lines)
    if quoting == "none":
        reader = csv.reader(every, delimiter=separator, quoting=csv.QUOTE_NONE, strict=True)
    else:
        reader = csv.reader(every, delimiter=separator, strict=True)
    while True:
        where = f"{file}:{reader.line_num + 1}"
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise UserError(
                f"{where}: the row that starts here cannot be read ({error}).\n"
                'Close every quote, and write "" for a quote within quotes. If quotes are plain '
                "text, type task.quoting=none (ptrun predict: --quoting none)."
            ) from error
        if cells and (len(cells) > 1 or cells[0].strip()):
            yield where, cells


def _texts(file: Path) -> Iterator[str]:
    for where, text in text_lines(file):
        if "\0" in text:
            raise UserError(f"{where}: a NUL byte; save the file as UTF-8 text.")
        yield text


def _until_filled(lines: Iterator[str]) -> Iterator[str]:
    """Yield lines up to the first that is not blank."""
    for line in lines:
        yield line
        if line.strip():
            return


def _separator(header: str) -> str:
    bare = re.sub(r'"[^"]*"', "", header)
    return max(",;\t", key=bare.count)
