"""One published row of a SuperGLUE task as rows with the field names of the hub's copy.

Paragraphs of MultiRC become one row per answer, passages of ReCoRD one per query. Labels become
numbers, as on the hub.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from ptrun.errors import UserError
from ptrun.importing.data.fields import each, inner, label, number
from ptrun.importing.data.writing import Record
from ptrun.task.shown import shown
from ptrun.task.source import Row

_NO_YES = (False, True)


def _flat(
    texts: Sequence[str],
    labels: Sequence[Any],
    row: Row,
    *,
    hidden: bool,
    numbers: Sequence[str] = (),
) -> Iterator[Record]:
    """Yield the row of a task whose rows are flat."""
    fields = {key: row.text(key) for key in texts} | {key: number(row, key) for key in numbers}
    yield {**fields, "idx": row.value("idx"), **_label(row, labels, hidden=hidden)}


def _label(row: Row, labels: Sequence[Any], *, hidden: bool) -> Record:
    """Return the label as a field; a hidden test has none."""
    return {} if hidden else {"label": label(row, labels)}


def _multirc(row: Row, *, hidden: bool) -> Iterator[Record]:
    """Yield one row per candidate answer; the indices are those of the files."""
    passage = inner(row, "passage")
    for question in each(passage, "questions"):
        for answer in each(question, "answers"):
            yield {
                "paragraph": passage.text("text"),
                "question": question.text("question"),
                "answer": answer.text("text"),
                "idx": {
                    "paragraph": number(row, "idx"),
                    "question": number(question, "idx"),
                    "answer": number(answer, "idx"),
                },
                **_label(answer, (0, 1), hidden=hidden),
            }


def _record(row: Row, *, hidden: bool) -> Iterator[Record]:
    """Yield one row per query; entities and answers without repetitions, sorted."""
    passage = inner(row, "passage")
    text = passage.text("text")
    spans = sorted((_span(entity, text) for entity in each(passage, "entities")), key=_start)
    for query in each(row, "qas"):
        yield {
            "passage": text,
            "query": query.text("query"),
            "entities": sorted({span["text"] for span in spans}),
            "entity_spans": {k: [span[k] for span in spans] for k in ("text", "start", "end")},
            **({} if hidden else {"answers": _answers(query)}),
            "idx": {"passage": number(row, "idx"), "query": number(query, "idx")},
        }


def _answers(query: Row) -> list[str]:
    return sorted({answer.text("text") for answer in each(query, "answers")})


def _span(entity: Row, text: str) -> dict[str, Any]:
    """Return an entity's text and its characters `start` to `end`; the files include the last."""
    start, end = number(entity, "start"), number(entity, "end") + 1
    if not 0 <= start < end <= len(text):
        raise UserError(
            f"{entity.where}: entity {shown(entity.data)} is outside its passage of {len(text)} "
            "characters."
        )
    return {"text": text[start:end], "start": start, "end": end}


def _start(span: dict[str, Any]) -> int:
    return int(span["start"])


def _wsc(row: Row, *, hidden: bool) -> Iterator[Record]:
    """Yield the row with its two spans beside the text."""
    target = inner(row, "target")
    yield {
        "text": row.text("text"),
        "span1_index": number(target, "span1_index"),
        "span2_index": number(target, "span2_index"),
        "span1_text": target.text("span1_text"),
        "span2_text": target.text("span2_text"),
        "idx": row.value("idx"),
        **_label(row, _NO_YES, hidden=hidden),
    }


READERS: dict[str, Callable[..., Iterator[Record]]] = {
    "BoolQ": partial(_flat, ("question", "passage"), _NO_YES),
    "CB": partial(_flat, ("premise", "hypothesis"), ("entailment", "contradiction", "neutral")),
    "COPA": partial(_flat, ("premise", "choice1", "choice2", "question"), (0, 1)),
    "MultiRC": _multirc,
    "ReCoRD": _record,
    "RTE": partial(_flat, ("premise", "hypothesis"), ("entailment", "not_entailment")),
    "WiC": partial(
        _flat,
        ("word", "sentence1", "sentence2"),
        _NO_YES,
        numbers=("start1", "start2", "end1", "end2"),
    ),
    "WSC": _wsc,
}
"""How a row of each task is read, by the name of its folder; `hidden` says that it has no label."""
