"""The rows of a user's file as checked examples of the run's task."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from ptrun.errors import UserError
from ptrun.task.base import Task
from ptrun.task.shown import names, near, shown
from ptrun.task.source import Row
from ptrun.task.table import columns, rows
from ptrun.types import Example

_ID = "id"


@dataclass(frozen=True)
class Question:
    """A row as an example, and the id of its prediction."""

    id: int | str
    example: Example


def questions(file: Path, task: Task, parts: Collection[str]) -> Iterator[Question]:
    """Yield each row of a file in order; only a few rows are in memory at once.

    `parts` are the relations with their own prompt, or only "".

    Raises:
        UserError: the file is missing, empty or without a required field, or a row has an empty
            field or a relation that was not learned.
    """
    known = columns(file)
    _check_fields(file, task, known)
    cells = file.name.lower().removesuffix(".gz").endswith((".csv", ".tsv"))
    for number, row in enumerate(rows(file, known), start=1):
        _check_filled(row, task, cells=cells)
        example = task.unlabelled(str(number), row)
        if "" not in parts and example.group not in parts:
            raise UserError(
                f"{row.where}: relation {shown(example.group)} was not learned; the run has "
                f"{names(sorted(parts))}."
            )
        yield Question(_name(row, number, task), example)


def _check_fields(file: Path, task: Task, known: Collection[str]) -> None:
    for field in task.reads:
        if field not in known:
            raise UserError(
                f"{file}: no field {shown(field)}{near(field, known)}\n"
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
