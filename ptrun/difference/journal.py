"""The first row of `metrics.jsonl` in which two runs differ."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ptrun.run.find import Run

FILE = "metrics.jsonl"
_NAMING = ("part", "event", "step")


@dataclass(frozen=True)
class Journals:
    """How many rows were compared, and the first that differs, in words."""

    rows: int
    first: str | None = None


def compare(a: Run, b: Run) -> Journals | None:
    """Return where two runs part ways; None where one has no journal.

    Times are not compared.

    Raises:
        UserError: a line is damaged.
    """
    own, other = a.rows(FILE), b.rows(FILE)
    if own is None or other is None:
        return None
    ours, theirs = _named(own), _named(other)
    for name, row in ours.items():
        if name not in theirs:
            return Journals(len(ours), f"{_place(name)}: only A has it")
        if row != theirs[name]:
            return Journals(len(ours), f"{_place(name)}: {_told(row, theirs[name])}")
    extra = next((name for name in theirs if name not in ours), None)
    return Journals(len(ours), f"{_place(extra)}: only B has it" if extra else None)


def _named(rows: list[dict[str, Any]]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Return rows by part, event and step: a run that was cut may have written in another order."""
    timeless = [{k: v for k, v in row.items() if "second" not in k} for row in rows]
    return {tuple(row.get(key) for key in _NAMING): row for row in timeless}


def _place(name: tuple[Any, ...]) -> str:
    part, event, step = name
    where = f"step {step} ({event})" if step is not None else str(event)
    return f"{where} of {part}" if part else where


def _told(row: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    keys = [key for key in dict.fromkeys([*row, *other]) if row.get(key) != other.get(key)]
    return ", ".join(f"{key} {row.get(key)} → {other.get(key)}" for key in keys)
