"""Tables as people have them: each is read right, or refused with what to type."""

import gzip
import json
import logging
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ptrun.errors import UserError
from ptrun.task import lines
from ptrun.task.own import Own
from ptrun.task.table import Given, table
from tests.task.tables import READ, REFUSED, cells, objects, put


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def own(name="a.csv", content=None, /, **keys):
    if content is not None:
        put(name, content)
    return Own(None, **{"train": name, "text": "text", "label": "label", **keys})


def found(task):
    (field,) = task.fields
    return [(e.fields[field], e.target) for e in task.load("train")]


def refused(*told, **keys):
    with pytest.raises(UserError) as raised:
        task = own(**keys)
        assert [task.load("train"), task.digest(), task.labels]
    message = str(raised.value)
    assert all(words in message for words in told), message
    assert len(message.splitlines()) <= 3 and len(message) < 600


@pytest.mark.parametrize("name", READ)
def test_a_table_is_read(name):
    file, content, rows, keys = READ[name]
    task = own(file, content, **keys)
    assert found(task) == rows and len(task.digest()) == 16
    assert task.accounts["train"].record() == {"read": len(rows), "left_out": {}}


@pytest.mark.parametrize("name", REFUSED)
def test_a_table_is_refused(name):
    file, _, _ = name.rpartition(": ")
    content, *told = REFUSED[name]
    put(file or "a.csv", content)
    refused(*told, train=file or "a.csv")


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"columns": ["text", "label"]}, ["a.csv:1: the names", "Leave out task.columns"]),
        ({"columns": ["text"], "label": "text"}, ["same column twice"]),
        ({"columns": ["label", "text", "x"]}, ["a.csv:1: 2 cells", "names all columns"]),
        ({"separator": "ab"}, ["type one character, or tab"]),
        *(({"encoding": e}, ["unknown; for example"]) for e in ("idna", "rot13", "nope", "base64")),
        ({"encoding": "ascii", "train": "e.csv"}, ["e.csv:2: byte 0xc3 at 1"]),
        ({"quoting": "none", "train": "q.csv"}, ["q.csv:2: 3 cells", "A line break cuts"]),
        ({"train": "."}, ["a folder; name one file", "a.csv"]),
        ({"train": "hub"}, ["a folder; name one file, as hub/test-0.csv"]),
        ({"train": "aa.csv"}, ["no such file", "did you mean 'a.csv'?"]),
        ({"train": "b.xlsx", "label": "more"}, ["Its first sheet is read"]),
    ],
)
def test_what_is_typed_is_refused(keys, told):
    Path("a.csv").write_text(cells())
    Path("e.csv").write_text("text,label\né,x\n")
    Path("q.csv").write_text('text,label\n"a, b",x\n')
    Path("b.xlsx").write_bytes(READ["Excel by content"][1])
    Path("hub").mkdir()
    for name in ("train-0.csv", "train-1.csv", "test-0.csv"):
        Path("hub", name).touch()
    refused(*told, **keys)


def test_every_row_counts_and_blank_lines_are_none_but_in_one_column():
    Path("gap.csv").write_text('text\na\n\nb\n""\nc\n\n\n')
    rows = [(row.where, row.data["text"]) for row in table(Path("gap.csv")).rows(["text"])]
    assert rows == [(f"gap.csv:{n}", t) for n, t in enumerate(["a", "", "b", "", "c"], start=2)]
    Path("two.csv").write_text("sep=,\n\ntext,label\na,1\n\nb,2\n\n")
    rows = [(row.where, row.data["text"]) for row in table(Path("two.csv")).rows(["text"])]
    assert rows == [("two.csv:4", "a"), ("two.csv:6", "b")]


def test_one_of_several_files_names_them_all(caplog):
    logging.getLogger("ptrun").propagate = True
    Path("train-00000-of-00002.csv").write_text(cells())
    Path("train-00001-of-00002.csv").write_text(cells())
    with caplog.at_level(logging.WARNING, "ptrun"):
        assert len(own("train-00000-of-00002.csv").load("train")) == 12
    assert "'train-*-of-00002.csv' names them all" in caplog.text
    assert len(own("train-*-of-00002.csv").load("train")) == 24
    assert (own("train-*-of-00002.csv").name, own("My.a.csv", cells()).name) == ("train", "My.a")


def test_what_was_found_is_said():
    Path("a.csv").write_text(cells(separator=";"))
    assert table(Path("a.csv")).found == "cells separated by ;, header, utf-8"
    given = Given(columns=["a", "b"], quoting="none")
    assert table(Path("a.csv"), given).found == (
        "cells separated by ;, no header, utf-8, quotes are text"
    )


def test_a_single_object_is_a_row():
    for row in ({"spans": [{"start": 0}]}, {"examples": [{"text": "y"}]}, {"data": "x"}):
        Path("a.json").write_text(json.dumps({"text": "x", **row}))
        assert [data for _, data in lines.json_rows(Path("a.json"))] == [{"text": "x", **row}]
    Path("a.json").write_text(json.dumps({"0": objects()[0]}, indent=1))
    assert [where for where, _ in lines.json_rows(Path("a.json"))] == ["a.json row 1"]


def test_a_huge_line_is_refused_before_it_is_read():
    with gzip.open("train.jsonl.gz", "wb") as file:
        file.write(b'{"a": 1}\n')
        for _ in range(12):
            file.write(bytes(2**24))
    tracemalloc.start()
    with pytest.raises(UserError, match=r"train.jsonl.gz:2: a line of more than 33,554,432 bytes"):
        list(lines.text_lines(Path("train.jsonl.gz")))
    assert tracemalloc.get_traced_memory()[1] < 2**27
    tracemalloc.stop()


def test_a_line_of_the_greatest_length_is_read(monkeypatch):
    monkeypatch.setattr(lines, "LONGEST", 5)
    Path("a.txt").write_text("1234\n12345\n")
    rows = lines.text_lines(Path("a.txt"))
    assert next(rows)[1] == "1234\n"
    with pytest.raises(UserError, match=r"a.txt:2: a line of more than 5 bytes"):
        next(rows)
    Path("a.txt").write_text("12345")
    assert [text for _, text in lines.text_lines(Path("a.txt"))] == ["12345"]


def test_a_packed_file_that_grows_a_thousand_times_is_refused(monkeypatch):
    monkeypatch.setattr(lines, "_SMALL", 2**20)
    monkeypatch.setattr(lines, "_RATIO", 100)
    rows = cells([("x" * 1000, "a")] * 60_000)
    put("a.csv.gz", gzip.compress(rows.encode(), 9))
    refused("unpacks to more than 100 times its size", train="a.csv.gz")


def test_equal_long_texts_of_parquet_are_stored_once():
    """A file of some KB whose 400 rows would be 1.2 GB in one batch."""
    index = pa.DictionaryArray.from_arrays(pa.array([0] * 400, "int32"), ["x" * 3_000_000])
    rows = pa.table({"text": index.cast("string"), "label": ["a"] * 400})
    pq.write_table(rows, "a.parquet", compression="zstd")
    del rows, index
    assert Path("a.parquet").stat().st_size < 100_000
    before, most = pa.total_allocated_bytes(), 0
    for _, row in zip(range(50), table(Path("a.parquet")).rows(["text", "label"]), strict=False):
        most = max(most, pa.total_allocated_bytes() - before)
        assert len(row.data["text"]) == 3_000_000
    assert most < 100_000_000
