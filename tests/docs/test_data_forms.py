"""The tables of howto/data.md: each form, label and export that they name is read."""

import bz2
import gzip
import io
import json
import lzma
import zipfile
from pathlib import Path

import datasets
import pandas as pd
import pyarrow as pa
import pytest

from ptrun.errors import UserError
from ptrun.task.label import skipping
from ptrun.task.own import Own
from tests.docs.pages import text
from tests.fuzz import test_exports as exports
from tests.importing.data.original import imported

ROWS = [("a good film", "pos"), ("it was bad", "neg"), ("we liked it", "pos")]
FRAME = pd.DataFrame(ROWS, columns=["text", "label"])


def first_cells(header):
    """Return the first cells of the table with this header."""
    lines = text("howto/data.md").partition(f"| {header} |")[2].splitlines()[2:]
    body = lines[: next(i for i, line in enumerate(lines) if not line.startswith("|"))]
    return [line.split("|")[1].strip() for line in body]


def cells(separator=",", end="\n"):
    return end.join(separator.join(row) for row in [("text", "label"), *ROWS]) + end


def objects(**form):
    return [json.dumps(row, **form) for row in FRAME.to_dict("records")]


def buffered(write):
    buffer = io.BytesIO()
    write(buffer)
    return buffer.getvalue()


def zipped(file):
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.csv", cells())


def parts(folder):
    """Write a file for each row, as Spark does."""
    folder.mkdir()
    for number, row in enumerate(ROWS):
        lines = [("text", "label"), row]
        (folder / f"part-0000{number}-a.csv").write_text("".join(",".join(x) + "\n" for x in lines))
    (folder / "_SUCCESS").touch()


def saved(frame):
    return datasets.Dataset.from_pandas(frame).cast_column(
        "label", datasets.ClassLabel(names=["neg", "pos"])
    )


def zstandard(content):
    return pa.compress(content, codec="zstd", asbytes=True)


FORMS = {
    "CSV, TSV": {
        **{f"{i}.csv": cells(s).encode() for i, s in enumerate(",;|\t")},
        "a.tsv": cells("\t").encode(),
        "sep.csv": b"sep=;\n" + cells(";").encode(),
        "wide.csv": cells().encode("utf-16"),
        "crlf.csv": cells(end="\r\n").encode(),
        "cr.csv": cells(end="\r").encode(),
    },
    "JSON, JSON lines": {
        "a.jsonl": "\n".join(objects()).encode(),
        "list.json": f"[{','.join(objects())}]".encode(),
        "long.json": "\n".join(objects(indent=2)).encode(),
        "data.json": f'{{"data": [{",".join(objects())}]}}'.encode(),
        **{
            f"{orient}.json": FRAME.to_json(orient=orient).encode()
            for orient in ("records", "columns", "index", "split", "table")
        },
    },
    "parquet, Arrow": {
        "a.parquet": buffered(FRAME.to_parquet),
        "a.arrow": buffered(FRAME.to_feather),
        "folder": lambda file: saved(FRAME).save_to_disk(file),
    },
    "Excel": {"a.xlsx": buffered(lambda file: FRAME.to_excel(file, index=False))},
    "several files": {"part": parts, "part/part-*-a.csv": lambda file: None},
    "packed": {
        "a.csv.gz": gzip.compress(cells().encode()),
        "a.csv.bz2": bz2.compress(cells().encode()),
        "a.csv.xz": lzma.compress(cells().encode()),
        "a.csv.zst": zstandard(cells().encode()),
        "a.zip": zipped,
        "other.csv": gzip.compress(cells().encode()),
    },
}


def own(file, **keys):
    return Own(None, train=str(file), text="text", label="label", **keys)


@pytest.mark.parametrize("form", FORMS)
def test_a_form_is_read(tmp_path, form):
    for name, content in FORMS[form].items():
        file = tmp_path / name
        content(file) if callable(content) else file.write_bytes(content)
        found = [(e.fields["text"], e.target) for e in own(file).load("train")]
        assert found == ROWS, name


def labels(folder, values, **keys):
    """Return the labels of a file of these values, or the refusal."""
    rows = [{"text": f"x{i}", "label": value} for i, value in enumerate(values)]
    (folder / "l.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    try:
        return list(own(folder / "l.jsonl", **keys).labels)
    except UserError as error:
        return str(error)


def one_label(folder, _):
    mixed = [1, 1.0, "1", True, "true", " pos ", ["pos"], "['pos']"]
    assert labels(folder, mixed) == ["1", "pos", "true"]


def no_label(folder, caplog):
    for value in ("nan", "-", "#N/A"):
        assert labels(folder, [value, "a", "b"]) == sorted([value, "a", "b"])
        assert skipping([value]) in caplog.text
        assert labels(folder, [value, "a", "b"], skip=[value]) == ["a", "b"]
    assert labels(folder, [-1, 0, 1]) == ["-1", "0", "1"] and "task.skip=[-1]" in caplog.text


def empty_cell(folder, _):
    assert "in 2 rows" in labels(folder, ["", "a", "b", None])
    assert labels(folder, ["", "a", "b", None], empty="skip") == ["a", "b"]


def several(folder, _):
    assert "several labels" in labels(folder, ["a;b", "a", "b", "b;c", "c"])
    assert "several labels" in labels(folder, [["a", "b"], "a"])


def sentences(folder, _):
    values = [f"This is the long answer number {i}." for i in range(9)]
    assert "task.answer=label" in labels(folder, values)


def fractions(folder, _):
    numbers = [i / 7 for i in range(1, 60)]
    assert "task.kind=regression" in labels(folder, numbers)
    own(folder / "l.jsonl", kind="regression").load("train")


LABELS = {
    "`1`, `1.0`; `True`, `true`; ` pos `, `[\"pos\"]`, `['pos']`": one_label,
    "`nan`, `-`, `#N/A`, -1 beside numbers from 0 or beside names": no_label,
    "an empty cell": empty_cell,
    "`a;b`, a list of several": several,
    "sentences, nearly all different": sentences,
    "many numbers with fractions": fractions,
}


@pytest.mark.parametrize("label", LABELS)
def test_a_label_is_what_the_table_says(tmp_path, caplog, label):
    LABELS[label](tmp_path, caplog)


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
    assert first_cells("a file") == list(FORMS)
    assert first_cells("a label") == list(LABELS)
    assert first_cells("`ptrun import data`") == list(EXPORTS)
