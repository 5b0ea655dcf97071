"""Errors of the system in words: the path, the cause, what to type; mistakes of ours stay."""

import errno
import io
import json
import os
import re

import pyarrow
import pytest
import yaml
from safetensors import SafetensorError

from ptrun.errors import UserError, explained, folded, named


def told(error):
    return str(explained(error))


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "Free space, or type outputs=DIR"),
        (errno.EROFS, "outputs=DIR"),
        (errno.EACCES, "Give yourself the right"),
        (errno.ENOTDIR, "Check the path"),
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
    assert told(raised.value).startswith("the system: No such file or directory.")


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
    allocator = RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate")
    assert told(allocator).startswith("out of memory ([enforce fail]")
    assert told(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "odd")).startswith("a text is not UTF-8")


@pytest.mark.parametrize("error", [ValueError("x"), KeyError("x"), RuntimeError("x"), TypeError()])
def test_a_mistake_of_the_program_keeps_its_traceback(error):
    assert explained(error) is None


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has", "the GPU is out of memory"),
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling", "the GPU is out of memory"),
        ("CUDA error: no kernel image is available for execution", "torch cannot use this GPU"),
        ("The NVIDIA driver on your system is too old (found 11040)", "torch cannot use this GPU"),
        ("CUDA driver version is insufficient for CUDA runtime", "torch cannot use this GPU"),
        ("Found no NVIDIA driver on your system. Please check", "torch cannot use this GPU"),
        ("Torch not compiled with CUDA enabled", "torch cannot use this GPU"),
        ("CUDA error: all CUDA-capable devices are busy or unavailable", "CUDA reports an error"),
        ("CUDA error: uncorrectable ECC error encountered", "CUDA reports an error"),
        ("CUDA error: device-side assert triggered", "CUDA reports an error"),
        ("NCCL error in: ProcessGroupNCCL.cpp, unhandled system error", "cannot exchange data"),
        ("CUDA unknown error - this may be due to an incorrectly set up", "CUDA reports an error"),
        ("cuDNN error: CUDNN_STATUS_NOT_INITIALIZED", "CUDA reports an error"),
    ],
)
def test_an_error_of_a_gpu_says_what_it_means_and_what_to_type(text, meaning):
    error = explained(RuntimeError(text))
    assert isinstance(error, UserError) and meaning in str(error)
    assert text[:20] in str(error) and re.search(r"\). [A-Z].+\.$", str(error))


@pytest.mark.parametrize("text", ["out of memory", "shapes do not fit", "index 3 is out of bounds"])
def test_an_error_of_another_device_is_no_gpu_s(text):
    assert explained(RuntimeError(text)) is None


class PanicException(BaseException):
    """What a library written in Rust raises."""


@pytest.mark.parametrize(
    "error",
    [
        PanicException("backtrack limit"),
        IndexError("index out of range in self"),
        RuntimeError("Storage size calculation overflowed with sizes=[9, 9]"),
    ],
)
def test_a_model_whose_files_do_not_belong_together_is_told(error):
    text = f"the model cannot be computed ({error}). Check the folder of the model: config.json"
    assert str(explained(error)).startswith(text)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("width", [80, 40, 24])
def test_long_lines_are_divided_between_words_on_a_terminal_alone(monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    words = "method=vera        " + " ".join(f"word{n}" for n in range(30))
    path = "  " + "outputs/" * 12
    text = f"short\n{words}\n{path}"
    assert folded(text, io.StringIO()) == text
    told = folded(text, Terminal()).split("\n")
    assert " ".join(told).split() == text.split()
    assert told[0] == "short" and told[-1] == path, "a path is not divided"
    assert max(map(len, told[:-1])) <= width
    assert told[2].startswith("  word")
