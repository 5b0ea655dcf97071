"""Data sets as published, as rows of ptrun's tasks: GLUE, SuperGLUE, FewGLUE, LAMA and SQuAD."""

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path
from typing import Any

from ptrun.errors import UserError, names, shown
from ptrun.importing.data import MadeFile, Record, each, inner, label, rows, whole_number
from ptrun.task.facts import template, word_list
from ptrun.task.lines import json_file, text_lines
from ptrun.task.source import Account, Row

_LOG = logging.getLogger(__name__)


# SuperGLUE's files as published, and FewGLUE's in the same form.
#
# SuperGLUE (Wang et al. 2019) has `<Task>/{train,val,test}.jsonl`. The labels of test are hidden:
# its rows are for `ptrun predict --submission`, and no task reports on them. FewGLUE_32dev
# (P-tuning) has `<Task>/{train,dev32,val}.jsonl`: 32 examples to train on, 32 to select on, and
# SuperGLUE's val to report on.

_FEW = 32
_SUPERGLUE = {"train": "train", "val": "validation", "test": "test"}
_FEWGLUE = {"train": "train", "dev32": "validation", "val": "test"}
_FEWGLUE_ONLY = ("dev32.jsonl", "unlabeled.jsonl")


def superglue(source: Path) -> list[MadeFile]:
    """Return the files of all tasks that a folder of SuperGLUE has."""
    for folder in _tasks(source, READERS):
        if few := next((folder / n for n in _FEWGLUE_ONLY if (folder / n).is_file()), None):
            raise UserError(
                f"{few}: a file of FewGLUE; type ptrun import fewglue {source} --out DIR."
            )
    return _made(source, "superglue", _SUPERGLUE, needed=("train", "val"))


def fewglue(source: Path) -> list[MadeFile]:
    """Return the files of all tasks that a folder of FewGLUE has; dev32 and val may be absent."""
    for folder in _tasks(source, READERS):
        file = folder / "train.jsonl"
        more = islice(rows(file), _FEW, None) if file.is_file() else iter(())
        if row := next(more, None):
            raise UserError(
                f"{row.where}: FewGLUE has {_FEW} examples, this file has more. For SuperGLUE type "
                f"ptrun import superglue {source} --out DIR."
            )
    return _made(source, "fewglue", _FEWGLUE, needed=("train",))


def _tasks(source: Path, every: Mapping[str, Any]) -> list[Path]:
    """Return the folders of the tasks."""
    if folders := [source / name for name in every if (source / name).is_dir()]:
        return folders
    raise UserError(f"{source}: none of the folders {', '.join(every)} is there.")


def _made(
    source: Path, kind: str, splits: Mapping[str, str], needed: Sequence[str]
) -> list[MadeFile]:
    files = []
    for folder in _tasks(source, READERS):
        for theirs, ours in splits.items():
            file = folder / f"{theirs}.jsonl"
            if file.is_file():
                place = f"{kind}/{folder.name.lower()}"
                hidden = kind == "superglue" and theirs == "test"
                records = _records(file, folder.name, hidden=hidden)
                files.append(MadeFile(place, f"{ours}.jsonl", [file], records))
            elif theirs in needed:
                raise UserError(f"{file}: no such file; {folder.name} needs it.")
    return files


def _records(file: Path, task: str, *, hidden: bool) -> Iterator[Record]:
    for row in rows(file):
        for record in READERS[task](row):
            if not hidden and not {"label", "answers"} & record.keys():
                raise UserError(f"{row.where}: no label; a hidden test, or another task's file.")
            yield record


# One published row of a SuperGLUE task as rows with the field names of the hub's copy.
#
# Paragraphs of MultiRC become one row per answer, passages of ReCoRD one per query. Labels become
# numbers, as on the hub.

_NO_YES = (False, True)


def _flat(
    texts: Sequence[str], labels: Sequence[Any], row: Row, numbers: Sequence[str] = ()
) -> Iterator[Record]:
    """Yield the row of a task whose rows are flat."""
    fields: dict[str, Any] = {key: row.text(key) for key in texts}
    fields |= {key: whole_number(row, key) for key in numbers}
    yield {**fields, "idx": row.value("idx"), **_label(row, labels)}


def _label(row: Row, labels: Sequence[Any]) -> Record:
    """Return the label as a field; a hidden test has none."""
    return {"label": label(row, labels)} if "label" in row.data else {}


def _multirc(row: Row) -> Iterator[Record]:
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
                **_label(answer, (0, 1)),
            }


def _record(row: Row) -> Iterator[Record]:
    """Yield one row per query; entities and answers without repetitions, sorted."""
    passage = inner(row, "passage")
    text = passage.text("text")
    spans = sorted(
        (_span(entity, text) for entity in each(passage, "entities")), key=itemgetter("start")
    )
    for query in each(row, "qas"):
        answers = each(query, "answers") if "answers" in query.data else ()
        right = {"answers": sorted({a.text("text") for a in answers})}
        yield {
            "passage": text,
            "query": query.text("query"),
            "entities": sorted({span["text"] for span in spans}),
            "entity_spans": {k: [span[k] for span in spans] for k in ("text", "start", "end")},
            **(right if "answers" in query.data else {}),
            "idx": {"passage": whole_number(row, "idx"), "query": whole_number(query, "idx")},
        }


def _span(entity: Row, text: str) -> dict[str, Any]:
    """Return an entity's text and its characters `start` to `end`; the files include the last."""
    start, end = whole_number(entity, "start"), whole_number(entity, "end") + 1
    if not 0 <= start < end <= len(text):
        raise UserError(f"{entity.where}: entity {shown(entity.data)} is outside its passage.")
    return {"text": text[start:end], "start": start, "end": end}


def _wsc(row: Row) -> Iterator[Record]:
    """Yield the row with its two spans beside the text."""
    target = inner(row, "target")
    yield {
        "text": row.text("text"),
        "span1_index": whole_number(target, "span1_index"),
        "span2_index": whole_number(target, "span2_index"),
        "span1_text": target.text("span1_text"),
        "span2_text": target.text("span2_text"),
        "idx": row.value("idx"),
        **_label(row, _NO_YES),
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
"""How a row of each task is read, by the name of its folder."""


# GLUE's tables as published: `<Task>/{train,dev,test}.tsv`, with tabs, and quotes that are text.
#
# CoLA's train and dev files have no header. Labels become numbers, as on the hub. Lines with a
# wrong number of cells (three of QQP, cut by line breaks) are left out with a warning.


@dataclass(frozen=True)
class Glue:
    """The files of one task.

    Args:
        folder: of our task.
        texts: our fields by their columns.
        label: its column.
        labels: the names of the labels, by number; None means scores.
        splits: ours by the names of their files.
        columns: all columns, in order, of files without a header.
    """

    folder: str
    texts: Mapping[str, str]
    label: str = "label"
    labels: Sequence[str] | None = ("0", "1")
    splits: Mapping[str, str] = field(
        default_factory=lambda: {"train": "train", "dev": "validation", "test": "test"}
    )
    columns: Sequence[str] = ()


def _same(*fields: str) -> dict[str, str]:
    return {name: name for name in fields}


_PAIR = _same("sentence1", "sentence2")
_NO_NEUTRAL = ("entailment", "not_entailment")
_MNLI_LABELS = ("entailment", "neutral", "contradiction")
_MNLI = {"train": "train"} | {
    f"{theirs}_{kind}": f"{ours}_{kind}"
    for theirs, ours in (("dev", "validation"), ("test", "test"))
    for kind in ("matched", "mismatched")
}
_COLA = ("source", "label", "star", "sentence")
_MRPC = {"#1 String": "sentence1", "#2 String": "sentence2"}
_PREMISE = {"sentence1": "premise", "sentence2": "hypothesis"}
GLUE = {
    "CoLA": Glue("glue_cola", _same("sentence"), columns=_COLA),
    "SST-2": Glue("glue_sst2", _same("sentence")),
    "MRPC": Glue("glue_mrpc", _MRPC, "Quality"),
    "STS-B": Glue("glue_stsb", _PAIR, "score", None),
    "QQP": Glue("glue_qqp", _same("question1", "question2"), "is_duplicate"),
    "MNLI": Glue("glue_mnli", _PREMISE, "gold_label", _MNLI_LABELS, _MNLI),
    "QNLI": Glue("glue_qnli", _same("question", "sentence"), labels=_NO_NEUTRAL),
    "RTE": Glue("glue_rte", _PAIR, labels=_NO_NEUTRAL),
}
"""How the files of each task are read, by the name of its folder."""


def glue(source: Path) -> list[MadeFile]:
    """Return the files of all tasks that a folder of GLUE has; tests are without labels."""
    files = []
    for folder in _tasks(source, GLUE):
        task = GLUE[folder.name]
        for theirs, ours in task.splits.items():
            file = folder / f"{theirs}.tsv"
            if file.is_file():
                rows_of = _glue_rows(file, task, hidden=theirs.startswith("test"))
                files.append(MadeFile(task.folder, f"{ours}.jsonl", [file], rows_of))
            elif theirs == "train":
                raise UserError(f"{file}: no such file; {folder.name} needs it.")
    return files


def _glue_rows(file: Path, task: Glue, *, hidden: bool) -> Iterator[Record]:
    lines: Iterator[tuple[str, list[str]]] = (
        (where, text.rstrip("\r\n").split("\t")) for where, text in text_lines(file)
    )
    where, header = next(lines, (str(file), [""]))
    needed = [*task.texts, *([] if hidden else [task.label])]
    if not {*needed} <= {*header}:
        if len(header) != len(task.columns):
            raise UserError(f"{where}: expected the columns {names(needed)}; found {names(header)}")
        header, lines = list(task.columns), chain([(where, header)], lines)
    account = Account()
    for number, (place, line) in enumerate(lines):
        account.read += 1
        if len(line) != len(header):
            account.left_out[f"not {len(header)} cells"] += 1
            continue
        row = Row(place, dict(zip(header, line, strict=True)))
        fields: dict[str, Any] = {ours: row.text(theirs) for theirs, ours in task.texts.items()}
        idx = row.data.get("index", str(number))
        fields["idx"] = int(idx) if idx.isdecimal() else idx
        yield fields if hidden else {**fields, "label": _glue_label(row, task)}
    if account.left_out:
        _LOG.warning("%s: %s", file, account)


def _glue_label(row: Row, task: Glue) -> int | float:
    raw = row.text(task.label)
    if task.labels is not None:
        return label(row.with_fields({"label": raw}), task.labels)
    try:
        return float(raw)
    except ValueError as error:
        raise row.wrong(task.label, "a number") from error


# LAMA's T-REx facts as P-tuning releases them (zenodo 5578210, `P-tune_LAMA.tar.gz`).
#
# The folder has `relations.jsonl` (templates), `fact-retrieval/original/P*/{train,dev,test}.jsonl`
# (AutoPrompt's splits) and the words of each model, `29k-vocab.json` and `34k-vocab.json`. If they
# are put beside them, OptiPrompt's `{LPAQA,AutoPrompt}_relations.jsonl` are read too.

FOLDER = "lama_trex"
WORDS = ("29k-vocab.json", "34k-vocab.json")
_SPLITS = {"train": "train", "dev": "validation", "test": "test"}
_FACTS = "fact-retrieval/original"
_SEARCHED = {"lpaqa": "LPAQA_relations.jsonl", "autoprompt": "AutoPrompt_relations.jsonl"}


def lama(source: Path) -> list[MadeFile]:
    """Return the files of `task=lama`: facts, searched templates, lists of words.

    A fact is in the common vocabulary if `29k-vocab.json` lists its object for any model.
    """
    templates = _templates(source / "relations.jsonl")
    folders = [f for f in (source / _FACTS).glob("P*") if re.fullmatch(r"P\d+", f.name)]
    if not folders:
        raise UserError(f"{source}: no folders P17, P19, ... in {_FACTS}.")
    relations = sorted(folders, key=lambda folder: int(folder.name[1:]))
    lists = [source / name for name in WORDS if (source / name).is_file()]
    common = None
    if (file := source / WORDS[0]) in lists:
        common = {word for model in json_file(file) for word in word_list(file, model)}
    outputs = []
    for theirs, ours in _SPLITS.items():
        files = [folder / f"{theirs}.jsonl" for folder in relations]
        if absent := next((file for file in files if not file.is_file()), None):
            raise UserError(f"{absent}: no such file; each relation needs {', '.join(_SPLITS)}.")
        outputs.append(MadeFile(FOLDER, f"{ours}.jsonl", files, _facts(files, templates, common)))
    outputs += [MadeFile(FOLDER, file.name, [file], [json_file(file)]) for file in lists]
    return [*outputs, *_searched(source)]


def _templates(file: Path) -> dict[str, str]:
    """Return the template of each relation."""
    if not file.is_file():
        raise UserError(f"{file}: no such file; it has the templates of LAMA's relations.")
    return {row.text("relation"): template(row, "template") for row in rows(file)}


def _facts(
    files: list[Path], templates: dict[str, str], common: set[str] | None
) -> Iterator[Record]:
    for file in files:
        for row in rows(file):
            relation, answer = row.text("predicate_id"), row.text("obj_label")
            if relation != file.parent.name:
                raise UserError(f"{row.where}: predicate_id is {shown(relation)}, not its folder.")
            if relation not in templates:
                raise UserError(f"{row.where}: relations.jsonl has no template of {relation}.")
            fact = {
                "predicate_id": relation,
                "sub_label": row.text("sub_label"),
                "obj_label": answer,
                "template": templates[relation],
            }
            yield fact if common is None else {**fact, "obj_in_common_vocab": answer in common}


def _searched(source: Path) -> list[MadeFile]:
    """Return the file of searched templates, if any were put beside the relations."""
    files = {kind: source / name for kind, name in _SEARCHED.items()}
    here = {kind: file for kind, file in files.items() if file.is_file()}
    if not here:
        return []
    templates: dict[str, dict[str, str]] = {}
    for kind, file in here.items():
        for relation, text in _templates(file).items():
            templates.setdefault(relation, {"predicate_id": relation})[kind] = text
    return [MadeFile(FOLDER, "templates.jsonl", list(here.values()), templates.values())]


# SQuAD's own JSON files as rows: one question with its context and answers each.

_SQUAD_SPLITS = {"train": "train", "dev": "validation"}


def squad(source: Path) -> list[MadeFile]:
    """Return the files of `task=squad`, or of `task=squad_v2` if the files are version 2."""
    files = [source] if source.is_file() else sorted(source.glob("*.json*"))
    words = {file: re.split(r"[\W_]+", file.name.lower()) for file in files}
    splits = {
        split: [file for file in files if part in words[file]]
        for part, split in _SQUAD_SPLITS.items()
        if any(part in words[file] for file in files)
    }
    if not splits:
        raise UserError(
            f"{source}: no file of SQuAD among {names(f.name for f in files) or 'no files'}; their "
            "names have train or dev, as train-v1.1.json."
        )
    chosen = [file for part in splits.values() for file in part]
    versions = {_is_second(file) for file in chosen}
    if len(versions) > 1 or len(chosen) > len(splits):
        raise UserError(
            f"{source}: several versions or files for one part: {names(f.name for f in chosen)}; "
            "put those to read into a folder of their own."
        )
    if rest := [file.name for file in files if file not in chosen]:
        _LOG.warning("%s: not read: %s", source, names(rest))
    folder = "squad_v2" if versions.pop() else "squad"
    return [
        MadeFile(folder, f"{split}.jsonl", [file], _question_rows(file))
        for split, (file,) in splits.items()
    ]


def _is_second(file: Path) -> bool:
    """Return whether a file says version 2, or has a question without an answer."""
    if str(json_file(file).get("version", "")).lstrip("v").startswith("2"):
        return True
    return any(not row["answers"]["text"] for row in _question_rows(file))


def _question_rows(file: Path) -> Iterator[Record]:
    for article in each(Row(str(file), json_file(file)), "data"):
        for paragraph in each(article, "paragraphs"):
            context = paragraph.text("context")
            for question in each(paragraph, "qas"):
                answers = [] if question.data.get("is_impossible") else each(question, "answers")
                starts = [whole_number(answer, "answer_start") for answer in answers]
                yield {
                    "id": str(question.value("id")),
                    "title": str(article.data.get("title", "")),
                    "context": context,
                    "question": question.text("question"),
                    "answers": {"text": [a.text("text") for a in answers], "answer_start": starts},
                }
