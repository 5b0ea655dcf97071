"""Lines of text files: a small file that unpacks to a huge line does not fill the memory."""

import gzip
import tracemalloc

import pytest

from ptrun.errors import UserError, visible
from ptrun.task import lines
from ptrun.task.lines import text_lines


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
