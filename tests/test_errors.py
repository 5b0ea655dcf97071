"""Errors of the system in words: the path, the cause, what to type; mistakes of ours stay."""

import errno
import json
import os

import pyarrow
import pytest
import yaml
from safetensors import SafetensorError

from ptrun.errors import explained, named


def told(error):
    return str(explained(error))


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "Free space, or type outputs=DIR"),
        (errno.EROFS, "outputs=DIR"),
        (errno.EACCES, "Give yourself the right"),
        (errno.ENOTDIR, "A part of the path is a file"),
        (errno.ENAMETOOLONG, "shorter name"),
        (errno.EMFILE, "ulimit -n"),
    ],
)
def test_an_error_of_the_system_names_path_cause_and_advice(number, words):
    text = told(OSError(number, os.strerror(number), "/some/file"))
    assert text.startswith(f"/some/file: {os.strerror(number)}. ") and words in text


def test_a_write_without_a_name_gets_one_and_its_draft_is_removed(tmp_path):
    draft = tmp_path / "draft"
    draft.write_text("half")
    with pytest.raises(OSError, match="No space") as raised, named(tmp_path / "file", draft):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert told(raised.value).startswith(f"{tmp_path / 'file'}: No space left on device. Free")
    assert not draft.exists()


def test_a_full_disk_that_a_library_tells_in_words_is_one(tmp_path):
    error = SafetensorError("Error while serializing: I/O error: No space (os error 28)")
    assert told(error).startswith("the system: No space left on device. Free space")
    with pytest.raises(OSError, match="No space") as raised, named(tmp_path / "file"):
        raise error
    assert told(raised.value).startswith(f"{tmp_path / 'file'}: No space left on device. Free")
    assert "not readable" in told(SafetensorError("header too large"))


def test_a_current_folder_that_was_removed_is_named(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    monkeypatch.setenv("PWD", str(tmp_path / "gone"))
    (tmp_path / "gone").rmdir()
    with pytest.raises(FileNotFoundError) as raised:
        os.getcwd()
    assert told(raised.value) == (
        f"{tmp_path / 'gone'}: the current folder was removed. Type cd DIR, then the same command "
        "again."
    )
    monkeypatch.chdir(tmp_path)
    assert told(raised.value).startswith("the system: No such file or directory. It was removed")


def parse(text):
    with pytest.raises(yaml.YAMLError) as raised:
        yaml.safe_load(text)
    return raised.value


def test_formats_that_cannot_be_read_are_told():
    assert "safetensors: not readable (header too large)" in told(
        SafetensorError("header too large")
    )
    assert told(pyarrow.ArrowInvalid("odd\nmore")).startswith("pyarrow: not readable (odd). A file")
    assert ":1: not YAML (expected" in told(parse("a: [1"))
    assert told(json.JSONDecodeError("Expecting value", "x", 0)).startswith("json: not readable")
    assert told(MemoryError()).startswith("out of memory. Free memory")
    assert told(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "odd")).startswith("a text is not UTF-8")


@pytest.mark.parametrize("error", [ValueError("x"), KeyError("x"), RuntimeError("x"), TypeError()])
def test_a_mistake_of_the_program_keeps_its_traceback(error):
    assert explained(error) is None
