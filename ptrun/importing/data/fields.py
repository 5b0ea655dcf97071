"""Checked parts of the rows that authors publish; every error has the file and the line."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ptrun.errors import UserError
from ptrun.task.lines import json_records
from ptrun.task.shown import shown
from ptrun.task.source import Row


def rows(file: Path) -> Iterator[Row]:
    """Yield the rows of a file of JSON: a list of objects, or one after another."""
    return (Row(where, data) for where, data in json_records(file))


def number(row: Row, key: str) -> int:
    """Return a whole number of a row.

    Raises:
        UserError: the field is absent or no whole number.
    """
    value = row.value(key)
    if type(value) is not int:
        raise UserError(f"{row.where}: field {key!r} is {shown(value)}; expected a whole number.")
    return value


def inner(row: Row, key: str) -> Row:
    """Return an object inside a row.

    Raises:
        UserError: the field is absent or no object.
    """
    value = row.value(key)
    if not isinstance(value, dict):
        raise UserError(f"{row.where}: field {key!r} is {shown(value)}; expected an object.")
    return Row(row.where, value)


def each(row: Row, key: str) -> list[Row]:
    """Return the objects of a list inside a row.

    Raises:
        UserError: the field is absent or no list of objects.
    """
    values = row.value(key)
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise UserError(f"{row.where}: field {key!r} is {shown(values)}; expected objects.")
    return [Row(row.where, value) for value in values]


def label(row: Row, names: Sequence[Any]) -> int:
    """Return the index of the row's `label` among its published names.

    Raises:
        UserError: the row has no label, or another one.
    """
    if "label" not in row.data:
        raise UserError(f"{row.where}: no label; the file is a hidden test or another task's.")
    raw = row.data["label"]
    if raw not in names:
        allowed = ", ".join(map(repr, names))
        raise UserError(f"{row.where}: label is {shown(raw)}; expected one of {allowed}.")
    return list(names).index(raw)
