"""The tables of howto/data.md: each form, label and export that they name is read."""

import json
from pathlib import Path

import pytest

from tests.docs.pages import text
from tests.fuzz import test_exports as exports
from tests.importing.data.original import imported
from tests.task.tables import PACKED, READ
from tests.task.test_own import LABELS as OWN_LABELS


def first_cells(header):
    """Return the first cells of the table with this header."""
    lines = text("howto/data.md").partition(f"| {header} |")[2].splitlines()[2:]
    body = lines[: next(i for i, line in enumerate(lines) if not line.startswith("|"))]
    return [line.split("|")[1].strip() for line in body]


FORMS = {
    "CSV, TSV": ["separated by ';'", "TSV", "a first line sep=;", "UTF-16", "CRLF", "CR"],
    "JSON, JSON lines": [
        *("lines in a.jsonl", "a list in a.json", "objects over lines in a.json"),
        *("an object with a list in a.json", "orient=records", "orient=columns"),
        *("orient=index", "orient=split", "orient=table"),
    ],
    "parquet, Arrow": ["parquet", "Arrow", "a folder of datasets", "classes", "lists of classes"],
    "Excel": ["Excel", "Excel by content"],
    "several files": ["numbered files", "numbered files by a *"],
    "packed": [
        *(f"{form}, by content" for form in PACKED),
        *(f"{form}, by name" for form in PACKED),
    ],
}
"""The cases of `tests/task/tables.py` that each form of the page names."""
LABELS = {
    "`1`, `1.0`; `True`, `true`; ` pos `, `[\"pos\"]`, `['pos']`": ["all forms"],
    "`nan`, `-`, `#N/A`, -1 beside numbers from 0 or beside names": ["skipped", "skipped -1"],
    "an empty cell": ["empty", "empty, skipped"],
    "`a;b`, a list of several": ["semicolons", "lists of several"],
    "sentences, nearly all different": ["sentences"],
    "many numbers with fractions": ["scores", "regression"],
}
"""The cases of `tests/task/test_own.py` that each label of the page names."""


COLUMNS = {
    "IOB1": "I-PER I-PER O I-LOC",
    "IOB2": "B-PER I-PER O B-LOC",
    "BIOES": "B-PER E-PER O S-LOC",
    "BILOU": "B-PER L-PER O U-LOC",
    "BMES": "B-PER E-PER O S-LOC",
    "IOE2": "I-PER E-PER O E-LOC",
}


def columns(folder):
    for scheme, tags in COLUMNS.items():
        pairs = zip(["Ann", "Lee", "in", "Oslo"], tags.split(), strict=True)
        sentence = "".join(f"{word} {tag}\n" for word, tag in pairs)
        made = [sentence.replace("Ann", f"Ann{i}") for i in range(30)]
        source = folder / f"{scheme}.txt"
        source.write_text("-DOCSTART- O\n\n# a line\n" + "\n".join(made))
        yield "conll", source, 30


def spans(folder):
    for name, row in (
        ("prodigy", exports.PRODIGY),
        ("doccano", exports.DOCCANO),
        ("new", exports.ENTITIES),
    ):
        rows = [{**row, "text": f"{row['text']} {i}"} for i in range(30)]
        source = folder / f"{name}.jsonl"
        source.write_text("".join(json.dumps(one) + "\n" for one in rows))
        yield "spans", source, 30


def studio(folder):
    source = folder / "studio.json"
    tasks = [{**exports.STUDIO, "data": {"text": f"{exports.TEXT} {i}"}} for i in range(30)]
    source.write_text(json.dumps([*tasks, {**exports.STUDIO, "annotations": []}]))
    yield "label_studio", source, 30


def questions(folder):
    for version in ("1.1", "2.0"):
        source = folder / f"train-v{version}.json"
        source.write_text(json.dumps({**exports.SQUAD, "version": version}))
        yield "squad", source, 2


def published(kind, name, lines):
    def made(folder):
        source = folder / kind
        (source / name).mkdir(parents=True)
        for part, content in lines.items():
            (source / name / part).write_text(content)
        yield kind, source, sum(content.count("\n") for content in lines.values())

    return made


def glue(folder):
    header = exports.GLUE_ROWS["RTE"].partition("\n")[2]
    yield from published("glue", "CoLA", {"train.tsv": exports.GLUE_ROWS["CoLA"]})(folder / "a")
    yield from published("glue", "RTE", {"train.tsv": header})(folder / "b")


CB = json.dumps(exports.SUPERGLUE["CB"]) + "\n"
EXPORTS = {
    "`conll`": columns,
    "`spans`": spans,
    "`label_studio`": studio,
    "`squad`": questions,
    "`glue`": glue,
    "`superglue`": published("superglue", "CB", {"train.jsonl": CB, "val.jsonl": CB}),
}


@pytest.mark.parametrize("kind", EXPORTS)
def test_an_export_is_read(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    for number, (command, source, count) in enumerate(EXPORTS[kind](tmp_path)):
        new = ["--task", f"t{number}"] if command in ("conll", "spans", "label_studio") else []
        out = imported(command, source, Path(f"out{number}"), *new)
        assert sum(len(f.read_text().splitlines()) for f in out.rglob("*.jsonl")) == count


def test_the_tables_name_what_is_tested():
    assert first_cells("a file") == list(FORMS) and first_cells("a label") == list(LABELS)
    assert first_cells("`ptrun import data`") == list(EXPORTS)
    assert {name for names in FORMS.values() for name in names} <= READ.keys()
    assert {name for names in LABELS.values() for name in names} <= OWN_LABELS.keys()
