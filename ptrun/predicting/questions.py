"""The user's rows as checked examples of the run's task, from a file or from Python."""

import shutil
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ptrun.errors import UserError
from ptrun.task.base import Task
from ptrun.task.shown import names, near, shown
from ptrun.task.source import Row
from ptrun.task.table import FOUND, Given, columns, rows, table
from ptrun.types import Example

_ID = "id"
STDIN = "-"
"""The name of standard input."""


@dataclass(frozen=True)
class Question:
    """A row as an example, the id of its prediction, its number from 1, and all its fields."""

    id: int | str
    example: Example
    number: int
    data: Mapping[str, Any]


def questions(
    file: Path, task: Task, parts: Collection[str], form: Given = FOUND
) -> Iterator[Question]:
    """Yield each row of a file in order; only a few rows are in memory at once.

    `parts` are the relations with their own prompt, or only "". `form` is what is known of a CSV.

    Raises:
        UserError: the file is missing, empty or without a required field, or a row has an empty
            field or a relation that was not learned.
    """
    known = columns(file, form)
    _check_fields(str(file), task, known)
    cells = table(file, form).kind in ("cells", "excel")
    return _asked(rows(file, known, form), task, parts, cells=cells)


def given(
    data: Iterable[Mapping[str, Any]], task: Task, parts: Collection[str]
) -> Iterator[Question]:
    """Yield each row of Python data in order; `parts` as in `questions`.

    Raises:
        UserError: a row is no mapping, or lacks a field, or has an empty one.
    """
    for number, own in enumerate(data, start=1):
        where = f"row {number}"
        if not isinstance(own, Mapping):
            raise UserError(f"{where}: {shown(own)}; expected a dict such as {_form(task)}.")
        _check_fields(where, task, own)
        yield _question(Row(where, own), number, task, parts, cells=False)


@contextmanager
def readable(file: Path) -> Iterator[Path]:
    """Yield a file that can be read twice: standard input, as JSON lines, is copied first.

    Raises:
        UserError: as it was raised, with the name of standard input in place of the copy's.
    """
    if str(file) != STDIN:
        yield file
        return
    with TemporaryDirectory(prefix="ptrun-") as folder:
        copy = Path(folder, "input.jsonl")
        with copy.open("wb") as opened:
            shutil.copyfileobj(sys.stdin.buffer, opened)
        try:
            yield copy
        except UserError as error:
            raise UserError(str(error).replace(str(copy), "standard input")) from error


def _asked(
    found: Iterable[Row], task: Task, parts: Collection[str], *, cells: bool
) -> Iterator[Question]:
    for number, row in enumerate(found, start=1):
        yield _question(row, number, task, parts, cells=cells)


def _question(
    row: Row, number: int, task: Task, parts: Collection[str], *, cells: bool
) -> Question:
    _check_filled(row, task, cells=cells)
    example = task.unlabelled(str(number), row)
    if "" not in parts and example.group not in parts:
        raise UserError(
            f"{row.where}: relation {shown(example.group)} was not learned; the run has "
            f"{names(sorted(parts))}."
        )
    return Question(_name(row, number, task), example, number, row.data)


def _form(task: Task) -> str:
    return "{" + ", ".join(f"{field!r}: ..." for field in task.reads) + "}"


def _check_fields(where: str, task: Task, known: Collection[str]) -> None:
    for field in task.reads:
        if field not in known:
            raise UserError(
                f"{where}: no field {shown(field)}{near(field, known)}\n"
                f"The run reads: {names(task.reads)}. Found: {names(known)}"
            )


def _check_filled(row: Row, task: Task, *, cells: bool) -> None:
    """Refuse a field without a value; in a table of text, an empty cell has none."""
    for field in task.reads:
        found = row.data.get(field, "null")
        if found is None or (cells and not str(found).strip()):
            raise UserError(
                f"{row.where}: field {shown(field)} is {'empty' if cells else 'null'}; fill it in "
                "or delete the row."
            )


def _name(row: Row, number: int, task: Task) -> int | str:
    """Return the id of the row, else its number."""
    found = None if _ID in task.reads else row.data.get(_ID)
    if found is None or found == "":
        return number
    if isinstance(found, bool) or not isinstance(found, int | str):
        raise UserError(f"{row.where}: id is {shown(found)}; expected a text, a number, or no id.")
    return found
