"""Lines of text files: a small file that unpacks to a huge line does not fill the memory."""

import gzip
import json
import tracemalloc
import zipfile

import pytest

from ptrun.errors import UserError, visible
from ptrun.task import lines
from ptrun.task.lines import json_rows, text_lines


def test_a_huge_line_is_refused_before_it_is_read(tmp_path):
    file = tmp_path / "train.jsonl.gz"
    with gzip.open(file, "wb") as opened:
        opened.write(b'{"a": 1}\n')
        for _ in range(12):
            opened.write(bytes(2**24))
    assert file.stat().st_size < 2**20
    tracemalloc.start()
    with pytest.raises(UserError, match=r"train.jsonl.gz:2: a line of more than 33,554,432 bytes"):
        list(text_lines(file))
    assert tracemalloc.get_traced_memory()[1] < 2**27
    tracemalloc.stop()


def test_a_line_of_the_greatest_length_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "LONGEST", 5)
    file = tmp_path / "a.txt"
    file.write_text("1234\n12345\n")
    rows = text_lines(file)
    assert next(rows)[1] == "1234\n"
    with pytest.raises(UserError, match=r"a.txt:2: a line of more than 5 bytes"):
        next(rows)
    file.write_text("12345")
    assert [text for _, text in text_lines(file)] == ["12345"]


def test_control_characters_are_written_out():
    assert visible("a\x1b[31mb\x9b\u202ec é 电") == "a\\x1b[31mb\\x9b\\u202ec é 电"


@pytest.mark.parametrize(
    "whole",
    [
        {"version": "1", "data": [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]},
        {"schema": {"fields": []}, "data": [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]},
        {"columns": ["a", "b"], "index": [0, 1], "data": [[1, "x"], [2, "y"]]},
        {"a": {"0": 1, "1": 2}, "b": {"0": "x", "1": "y"}},
        {"0": {"a": 1, "b": "x"}, "1": {"a": 2, "b": "y"}},
        {"id7": {"a": 1, "b": "x"}, "id9": {"a": 2, "b": "y"}},
    ],
    ids=["wrapped", "table", "split", "columns", "index", "by id"],
)
def test_one_object_that_holds_all_rows(tmp_path, whole):
    file = tmp_path / "a.json"
    file.write_text(json.dumps(whole, indent=1))
    assert [row for _, row in json_rows(file)] == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]
    file.write_text(json.dumps(whole))
    assert [where for where, _ in json_rows(file)] == [f"{file} row 1", f"{file} row 2"]


@pytest.mark.parametrize(
    "whole",
    [
        {str(i): {"0": f"t{i}", "1": "x"} for i in range(3)},
        {"0": {str(i): f"t{i}" for i in range(3)}, "1": dict.fromkeys("012", "x")},
        {"text": {"a": "t0", "b": "t1", "c": "t2"}, "label": dict.fromkeys("abc", "x")},
    ],
    ids=["index of numbers", "columns of numbers", "columns of an index of texts"],
)
def test_rows_are_more_than_columns(tmp_path, whole):
    file = tmp_path / "a.json"
    file.write_text(json.dumps(whole))
    assert [[*row.values()] for _, row in json_rows(file)] == [[f"t{i}", "x"] for i in range(3)]


@pytest.mark.parametrize(
    "row",
    [
        {"text": "x", "spans": [{"start": 0}]},
        {"text": "x", "examples": [{"text": "y"}]},
        {"data": "x"},
        {},
    ],
)
def test_a_single_row_is_a_row(tmp_path, row):
    file = tmp_path / "a.json"
    file.write_text(json.dumps(row))
    assert [found for _, found in json_rows(file)] == [row]


def test_a_zip_file_of_a_mac_holds_one_file(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("folder/", "")
        archive.writestr("folder/a.csv", "text\nx\n")
        archive.writestr("__MACOSX/folder/._a.csv", "\0")
        archive.writestr(".DS_Store", "\0")
    assert [text for _, text in text_lines(tmp_path / "a.zip")] == ["text\n", "x\n"]
