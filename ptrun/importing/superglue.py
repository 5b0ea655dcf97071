"""SuperGLUE's files as published, and FewGLUE's in the same form.

SuperGLUE (Wang et al. 2019) has `<Task>/{train,val,test}.jsonl`. The labels of test are hidden: its
rows are for `ptrun predict --submission`, and no task reports on them. FewGLUE_32dev (P-tuning) has
`<Task>/{train,dev32,val}.jsonl`: 32 examples to train on, 32 to select on, and SuperGLUE's val to
report on.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from ptrun.errors import UserError, shown
from ptrun.importing.data import MadeFile, Record, each, inner, label, rows, whole_number
from ptrun.task.source import Row

_FEW = 32
_SUPERGLUE = {"train": "train", "val": "validation", "test": "test"}
_FEWGLUE = {"train": "train", "dev32": "validation", "val": "test"}
_FEWGLUE_ONLY = ("dev32.jsonl", "unlabeled.jsonl")


def superglue(source: Path) -> list[MadeFile]:
    """Return the files of all tasks that a folder of SuperGLUE has.

    Raises:
        UserError: it has none, one lacks a split, or the files are FewGLUE's.
    """
    for folder in _tasks(source):
        if few := next((folder / n for n in _FEWGLUE_ONLY if (folder / n).is_file()), None):
            raise UserError(
                f"{few}: a file of FewGLUE; type ptrun import data fewglue {source} --out DIR."
            )
    return _made(source, "superglue", _SUPERGLUE, needed=("train", "val"))


def fewglue(source: Path) -> list[MadeFile]:
    """Return the files of all tasks that a folder of FewGLUE has; dev32 and val may be absent.

    Raises:
        UserError: it has none, one lacks train, or a train file has more than 32 lines.
    """
    for folder in _tasks(source):
        file = folder / "train.jsonl"
        more = islice(rows(file), _FEW, None) if file.is_file() else iter(())
        if row := next(more, None):
            raise UserError(
                f"{row.where}: FewGLUE has {_FEW} examples, this file has more. For SuperGLUE type "
                f"ptrun import data superglue {source} --out DIR."
            )
    return _made(source, "fewglue", _FEWGLUE, needed=("train",))


def _tasks(source: Path) -> list[Path]:
    """Return the folders of the tasks."""
    if found := [source / name for name in READERS if (source / name).is_dir()]:
        return found
    raise UserError(f"{source}: none of the folders {', '.join(READERS)} is there.")


def _made(
    source: Path, kind: str, splits: Mapping[str, str], needed: Sequence[str]
) -> list[MadeFile]:
    made = []
    for folder in _tasks(source):
        for theirs, ours in splits.items():
            file = folder / f"{theirs}.jsonl"
            if file.is_file():
                place = f"{kind}/{folder.name.lower()}"
                rows_of = _read(folder.name, file, hidden=kind == "superglue" and theirs == "test")
                made.append(MadeFile(place, f"{ours}.jsonl", [file], rows_of))
            elif theirs in needed:
                raise UserError(f"{file}: no such file; {folder.name} needs it.")
    return made


def _read(task: str, file: Path, *, hidden: bool) -> Iterator[Record]:
    return (record for row in rows(file) for record in READERS[task](row, hidden=hidden))


# One published row of a SuperGLUE task as rows with the field names of the hub's copy.
#
# Paragraphs of MultiRC become one row per answer, passages of ReCoRD one per query. Labels become
# numbers, as on the hub.

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
    fields = {key: row.text(key) for key in texts} | {
        key: whole_number(row, key) for key in numbers
    }
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
                    "paragraph": whole_number(row, "idx"),
                    "question": whole_number(question, "idx"),
                    "answer": whole_number(answer, "idx"),
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
            "idx": {"passage": whole_number(row, "idx"), "query": whole_number(query, "idx")},
        }


def _answers(query: Row) -> list[str]:
    return sorted({answer.text("text") for answer in each(query, "answers")})


def _span(entity: Row, text: str) -> dict[str, Any]:
    """Return an entity's text and its characters `start` to `end`; the files include the last."""
    start, end = whole_number(entity, "start"), whole_number(entity, "end") + 1
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
        "span1_index": whole_number(target, "span1_index"),
        "span2_index": whole_number(target, "span2_index"),
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
