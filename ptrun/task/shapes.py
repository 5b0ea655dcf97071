"""Recognises instructions and conversations by the names of their columns, where none is typed."""

import logging
from collections.abc import Sequence
from typing import Any

from ptrun.errors import UserError, names, near
from ptrun.task.conversation import EMPTY, TURNS, turns_of
from ptrun.task.source import HubTable, Row
from ptrun.task.table import Table

_LOG = logging.getLogger(__name__)
_TALKS = ("messages", "conversations", "conversation")
_PAIRS = (
    ("instruction", "output"), ("instruction", "response"), ("prompt", "completion"),
    ("prompt", "response"), ("question", "answer"), ("question", "response"),
)  # fmt: skip
_SECOND = ("input", "context")
_MORE = ("label", "labels", "choices", "options", "history", "system", "system_prompt", "tools")
"""Columns that change what a pair of texts means."""
_PREFERENCES = ("chosen", "rejected")


def columns_of(table: Table | HubTable) -> dict[str, Any]:
    """Return the columns of a table as keys of `task`; refuse those of no shape, or of several."""
    columns = {name.strip().lower(): name for name in table.columns}
    talks = [columns[name] for name in _TALKS if name in columns]
    shapes: dict[str, dict[str, Any]] = {f"task.messages={t}": {"messages": t} for t in talks}
    second = [columns[name] for name in _SECOND if name in columns]
    for first, answer in (pair for pair in _PAIRS if columns.keys() >= {*pair}):
        text = [columns[first], *second]
        word = f"'task.text=[{','.join(text)}]'" if second else f"task.text={text[0]}"
        keys = {"text": text if second else text[0], "answer": columns[answer]}
        shapes[f"{word} task.answer={columns[answer]}"] = keys
    typed = ", or ".join(shapes)
    more = [] if talks else [columns[name] for name in _MORE if name in columns]
    if columns.keys() >= {*_PREFERENCES}:
        wrong = "Pairs of preferences are not learned; name one text, as task.messages=chosen."
    elif len(shapes) > 1:
        wrong = f"They have {len(shapes)} shapes; type one: {typed}."
    elif shapes and more:
        wrong = f"{names(more)} would not be read; if that is meant, type {typed}."
    elif shapes:
        _LOG.info("%s: recognised %s", table.file, typed)
        return shapes[typed]
    else:
        wrong = "Type task.text=COLUMN task.label=COLUMN, or task.answer=COLUMN for texts to write."
        close = [pair for pair in _PAIRS if {*pair} & columns.keys()]
        if shape := next(iter(close), _TALKS[:1] if near(_TALKS[0], columns) else None):
            lacking = next(name for name in shape if name not in columns)
            wrong += f" The nearest shape, {' and '.join(shape)}, lacks {lacking}"
            wrong += near(lacking, columns) or "."
        elif "text" in columns and not {"label", "labels"} & columns.keys():
            wrong += " A text alone asks nothing, so nothing is learned."
    listed = f"task.text and task.label are missing; columns: {names(table.columns)}"
    raise UserError(f"{table.file}: {listed}\n{wrong}")


def are_turns(table: Table | HubTable, columns: Sequence[str]) -> bool:
    """Return whether columns hold turns, as the first row says in which they are filled.

    A single column is a conversation; anything else in it is refused.
    """
    for row in table.rows(columns):
        cells = [row.data.get(name) for name in columns]
        if any(cell in EMPTY for cell in cells):
            continue
        is_turns = [*map(bool, map(turns_of, cells))]
        if any(is_turns) and not all(is_turns):
            name, other = columns[is_turns.index(True)], columns[is_turns.index(False)]
            advice = "Write turns in both, or type a task.pattern, which reads texts."
            raise UserError(f"{row.where}: {name} holds turns, {other} does not. {advice}")
        if all(is_turns) or len(columns) > 1:
            return all(is_turns)
        parts = cells[0] if isinstance(cells[0], list) else cells
        if any(isinstance(part, dict) and part.keys() & {*_PREFERENCES} for part in parts):
            raise row.wrong(columns[0], "turns; pairs of preferences are not learned")
        raise row.wrong(columns[0], f"{TURNS} (texts are task.text=COLUMN task.answer=COLUMN)")
    return False


def joined(row: Row, asked: str, answer: str) -> tuple[Row, str]:
    """Return a row with the turns of two cells in one column, and that column.

    The turns of the answer alone are learned.
    """
    if asked == answer:
        return row, answer
    before, after = (turns_of(row.data.get(name)) for name in (asked, answer))
    if before is None or after is None:
        raise row.wrong(asked if before is None else answer, "turns, as in the first row")
    turns = [*({**turn, "train": False} for turn in before), *after]
    return row.with_fields({f"{asked} and {answer}": turns}), f"{asked} and {answer}"
