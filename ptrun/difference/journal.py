"""The first row of `metrics.jsonl` in which two runs differ."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ptrun.folder.find import Run

FILE = "metrics.jsonl"
_NAMING = ("part", "event", "step")
Rows = dict[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class Journals:
    """The number of rows, and the first difference as text."""

    rows: int
    first: str | None = None


def compare(a: Run, b: Run) -> Journals | None:
    """Return the first difference; None if a run has no journal. Times are not compared.

    Raises:
        UserError: a line is damaged.
    """
    own, other = a.rows(FILE), b.rows(FILE)
    if own is None or other is None:
        return None
    return Journals(len(own), _first(_by_step(own), _by_step(other)))


def _first(own: Rows, other: Rows) -> str | None:
    for name, row in own.items():
        if name not in other:
            return f"{_place(name)}: only A has it"
        if row != other[name]:
            return f"{_place(name)}: {_changes(row, other[name])}"
    extra = next((name for name in other if name not in own), None)
    return f"{_place(extra)}: only B has it" if extra else None


def _by_step(rows: list[dict[str, Any]]) -> Rows:
    """Return rows by part, event and step; an interrupted run may have another order."""
    timeless = [{k: v for k, v in row.items() if "second" not in k} for row in rows]
    return {tuple(str(row.get(key) or "") for key in _NAMING): row for row in timeless}


def _place(name: tuple[Any, ...]) -> str:
    part, event, step = name
    where = f"step {step} ({event})" if step else event
    return f"{where} of {part}" if part else where


def _changes(row: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    keys = [key for key in dict.fromkeys([*row, *other]) if row.get(key) != other.get(key)]
    return ", ".join(f"{key} {row.get(key)} → {other.get(key)}" for key in keys)
