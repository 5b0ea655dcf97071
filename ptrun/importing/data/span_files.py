"""Files of texts with marked spans: JSON lines, and the JSON export of Label Studio."""

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ptrun.errors import UserError
from ptrun.importing.data.fields import each, inner, number, rows
from ptrun.importing.data.spans import Span
from ptrun.task.lines import json_objects
from ptrun.task.shown import names, shown
from ptrun.task.source import Row

_LOG = logging.getLogger(__name__)
_KEYS = ("spans", "entities", "label", "labels")
_PARTS = ("start", "end", "label")
_DOCCANO = {"start_offset": "start", "end_offset": "end"}
_VERDICT, _LEFT_OUT = "answer", ("reject", "ignore")  # Prodigy's
_WHOLE_TEXT = ("choices", "taxonomy", "rating", "number", "textarea", "pairwise")


@dataclass(frozen=True)
class Marked:
    """A text, its place for errors, and its spans."""

    where: str
    text: str
    spans: Sequence[Span]


def json_spans(file: Path, text: str) -> Iterator[Marked]:
    """Yield the rows of a JSON file, also of Prodigy and doccano.

    A row has a text and `spans`, `entities`, `label` or `labels`: objects with `start`, `end` and
    `label` (doccano: `start_offset`, `end_offset`), or lists of the three. Rows that Prodigy's
    `answer` rejects or ignores are left out, with their number in a line.

    Args:
        file: the file.
        text: the field of the text.

    Raises:
        UserError: a field is missing or has another form.
    """
    left_out: Counter[str] = Counter()
    for row in rows(file):
        if row.data.get(_VERDICT) in _LEFT_OUT:
            left_out[str(row.data[_VERDICT])] += 1
            continue
        key = next((key for key in _KEYS if key in row.data), None)
        if key is None:
            raise UserError(
                f"{row.where}: no field 'spans' or 'entities'; this row has "
                f"{names(sorted(row.data))}. A text without spans has []."
            )
        yield Marked(row.where, row.text(text), [_span(one) for one in each(_lists(row, key), key)])
    for verdict, count in left_out.items():
        _LOG.warning("%s: %d rows are left out: their answer is %s", file, count, verdict)


def _lists(row: Row, key: str) -> Row:
    """Return the row with spans written as lists turned into objects."""
    given = row.value(key)
    if not isinstance(given, list):
        return row
    return row.with_fields({key: [_named(one) for one in given]})


def _named(one: Any) -> Any:
    """Return a list of three as an object, anything else as it is."""
    if isinstance(one, list) and len(one) == len(_PARTS):
        return dict(zip(_PARTS, one, strict=True))
    return {_DOCCANO.get(key, key): v for key, v in one.items()} if isinstance(one, dict) else one


def label_studio(file: Path, text: str) -> Iterator[Marked]:
    """Yield the tasks of a JSON export of Label Studio that somebody annotated.

    Tasks without an annotation, and cancelled annotations, are left out.

    Args:
        file: the export.
        text: the key of the text in `data`.

    Raises:
        UserError: the file has another form, or a task has several annotations.
    """
    for index, data in enumerate(json_objects(file)):
        task = Row(f"{file} task {data.get('id', index)}", data)
        if "annotations" not in data:
            raise UserError(
                f"{task.where}: no field 'annotations'. Export with the format JSON, not JSON-MIN."
            )
        if (annotation := _annotation(task)) is not None:
            found = [_region(one) for one in each(annotation, "result") if _is_region(one)]
            yield Marked(task.where, inner(task, "data").text(text), found)


def _annotation(task: Row) -> Row | None:
    """Return the annotation of a task, or None; of several, the one marked as ground truth."""
    every = [one for one in each(task, "annotations") if not one.data.get("was_cancelled")]
    true = [one for one in every if one.data.get("ground_truth")]
    chosen = true if len(every) > 1 else every
    if every and len(chosen) != 1:
        raise UserError(
            f"{task.where}: {len(every)} annotations, {len(true)} marked as ground truth; expected "
            "one. Mark one as ground truth in Label Studio and export again."
        )
    return chosen[0] if chosen else None


def _is_region(region: Row) -> bool:
    """Return whether a result marks a part of the text; relations between regions do not.

    Raises:
        UserError: it is of a type that ptrun does not read.
    """
    kind = region.data.get("type")
    if kind in _WHOLE_TEXT:
        raise UserError(
            f"{region.where}: a result of type {kind}, which is about the whole text.\n"
            "For labels of texts export CSV and type task=csv task.train=FILE task.label=COLUMN."
        )
    if kind not in ("labels", "hypertextlabels", "relation"):
        raise UserError(
            f"{region.where}: a result of type {shown(kind)}; expected labels or hypertextlabels."
        )
    return str(kind) != "relation"


def _region(region: Row) -> Span:
    """Return the span of a marked region; in a hypertext it counts the characters shown."""
    value = inner(region, "value")
    labels = value.value(str(region.data["type"]))
    if "globalOffsets" in value.data:
        value = value.with_fields(inner(value, "globalOffsets").data)
    if not isinstance(labels, list) or len(labels) != 1:
        raise UserError(f"{value.where}: labels of a span are {shown(labels)}; expected one.")
    return _span(value.with_fields({"label": labels[0]}))


def _span(row: Row) -> Span:
    label = row.text("label").strip()
    if not label:
        raise UserError(f"{row.where}: a span has an empty label. Name its type.")
    text = row.text("text") if "text" in row.data else None
    return Span(number(row, "start"), number(row, "end"), label, text)
