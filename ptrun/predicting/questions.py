"""Rows of a user's file as the run's task asks them, each checked, one after another."""

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
    """A row to be answered, and the id that its answer has."""

    id: int | str
    example: Example


def questions(file: Path, task: Task, parts: Collection[str]) -> Iterator[Question]:
    """Yield a question for each row of a file, in order; memory is that of some rows.

    `parts` are the relations that were learned apart, or "" alone.

    Raises:
        UserError: the file is not there, empty, or lacks a field; a row has none of it, or is about
            a relation that was not learned.
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
    """Refuse a field without a value; in a table of text cells that is an empty one."""
    for field in task.reads:
        found = row.data.get(field, "null")
        if found is None or (cells and not str(found).strip()):
            raise UserError(
                f"{row.where}: field {shown(field)} is {'empty' if cells else 'null'}; fill it in "
                "or delete the row."
            )


def _name(row: Row, number: int, task: Task) -> int | str:
    """Return the row's own id where it has one, else its number."""
    found = None if _ID in task.reads else row.data.get(_ID)
    if found is None or found == "":
        return number
    if isinstance(found, bool) or not isinstance(found, int | str):
        raise UserError(f"{row.where}: id is {shown(found)}; expected a text or a number, or none.")
    return found
