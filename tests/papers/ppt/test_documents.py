"""Corpora of every form are read as the same documents; what cannot be read is named."""

from itertools import islice

import pytest

from ptrun.errors import UserError
from ptrun.papers import corpus as module
from ptrun.papers.corpus import digest, documents
from tests.papers.ppt.corpora import document, write

THREE = [document(number, 3) for number in range(3)]


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.txt", "a.txt.gz"])
def test_each_form_gives_the_same_documents(tmp_path, name):
    file = write(tmp_path, THREE, name)
    assert list(documents(str(file))) == THREE
    assert list(documents(str(tmp_path))) == THREE


def test_a_folder_is_its_train_file_or_all_its_files(tmp_path):
    write(tmp_path, THREE[1:2], "part2.jsonl")
    write(tmp_path, THREE[:1], "part1.txt")
    (tmp_path / "LICENSE").write_text("free\n")
    assert list(documents(str(tmp_path))) == THREE[:2]
    write(tmp_path, THREE[2:], "train.jsonl")
    assert list(documents(str(tmp_path))) == THREE[2:]


def test_lines_are_the_corpus_own_or_sentences(tmp_path):
    file = write(tmp_path, [["One. Two!", " ", "好。坏？"]], "a.jsonl")  # noqa: RUF001
    assert list(documents(str(file))) == [["One. Two!", "好。坏？"]]  # noqa: RUF001
    assert list(documents(str(file), unit="sentence")) == [["One.", "Two!", "好。", "坏？"]]  # noqa: RUF001


def test_documents_that_are_far_too_long_are_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_LONGEST", 100)
    file = write(tmp_path, [document(1, 9), THREE[0]])
    assert list(documents(str(file))) == THREE[:1]


def test_the_pocket_corpus_is_one():
    assert all(isinstance(line, str) for lines in islice(documents("pocket"), 5) for line in lines)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('{"text": "a"}', r"a\.jsonl:1: no text 'doc'; it has text. Type task.source.field"),
        ("no", r"a\.jsonl:1: not JSON"),
    ],
)
def test_a_row_without_text_is_named(tmp_path, line, told):
    (tmp_path / "a.jsonl").write_text(line + "\n")
    with pytest.raises(UserError, match=told):
        list(documents(str(tmp_path / "a.jsonl")))


def test_no_corpus_is_named(tmp_path):
    with pytest.raises(UserError, match=r"task.source.corpus=.*nowhere: no corpus there; give"):
        list(documents(str(tmp_path / "nowhere")))


def test_the_digest_is_of_the_content_not_of_the_place(tmp_path):
    one, same = write(tmp_path / "a", THREE, "x.jsonl"), write(tmp_path / "b", THREE, "x.jsonl")
    other = write(tmp_path / "c", THREE[:2], "x.jsonl")
    assert digest(str(one)) == digest(str(same)) != digest(str(other))
