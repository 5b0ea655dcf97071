"""Pickled tensors come back to the bit in both formats, and nothing else in a pickle is made."""

import argparse
import os
import random
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from ptrun.errors import UserError
from ptrun.hub.pickled import open_file

FORMATS = pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32]
DTYPES += [torch.int16, torch.int8, torch.uint8, torch.bool, torch.complex64, torch.complex128]


def save(content, file, zipped=True):
    torch.save(content, file, _use_new_zipfile_serialization=zipped)
    return file


def refused(file, *words, keys=()):
    with pytest.raises(UserError) as caught:
        open_file(file, keys)
    assert str(caught.value).startswith(str(file))
    for word in words:
        assert word in str(caught.value), caught.value


@FORMATS
def test_every_dtype_and_every_view_comes_back(tmp_path, zipped):
    matrix = torch.randn(7, 5)
    state = {str(dtype): torch.randn(3, 4).mul(3).to(dtype) for dtype in DTYPES}
    state |= {"turned": matrix.T, "part": matrix[2:4, 1:], "copy": matrix, "again": matrix}
    state |= {"number": torch.tensor(2.5), "none": torch.zeros(0, 3)}
    state |= {"one row": matrix[:1].expand(4, 5), "parameter": torch.nn.Parameter(torch.randn(3))}
    read = open_file(save(state, tmp_path / "x.bin", zipped))
    assert list(read) == list(state)
    for name, tensor in state.items():
        assert read[name].dtype == tensor.dtype and read[name].equal(tensor), name
    assert read["copy"].data_ptr() == read["again"].data_ptr() != read["number"].data_ptr()
    state = torch.nn.Linear(3, 2).half().state_dict()  # an OrderedDict with an attribute
    read = open_file(save(state, tmp_path / "y.bin", zipped))
    assert all(read[name].equal(tensor) for name, tensor in state.items())


def test_a_zip_is_mapped_and_not_read(tmp_path):
    """63 of 64 MB stay on the disk."""
    file = save({"x": torch.ones(2**24)}, tmp_path / "x.bin")

    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")

    before = resident()
    tensor = open_file(file)["x"]
    assert tensor[-1] == 1 and resident() - before < 2**24


@FORMATS
def test_settings_and_random_states_beside_the_tensors_are_read_past(tmp_path, zipped):
    content = {
        "args": argparse.Namespace(lr=0.1, seen={3}),
        "sizes": [torch.Size([2])],
        "random": [random.getstate(), np.random.RandomState(0).get_state(), np.float64(2)],
        "x": {"w": torch.ones(2)},
    }
    read = open_file(save(content, tmp_path / "x.pt", zipped), ("args", "x"))
    assert (read["args"], read["sizes"], read["x"]["w"].tolist()) == (
        *(content["args"], content["sizes"]),
        [1, 1],
    )


class Calls:
    def __init__(self, *called):
        self.called = called

    def __reduce__(self):
        return self.called


HARM = {
    "mkdir": Calls(os.mkdir, ("harmed",)),
    "eval": Calls(eval, ("__import__('os').mkdir('harmed')",)),
    "exec": Calls(exec, ("open('harmed', 'w')",)),
    "torch.serialization.load": Calls(torch.load, ("x",)),
    "torch.nn": torch.nn.Linear(1, 1),
}


@FORMATS
@pytest.mark.parametrize("name", HARM)
def test_an_object_is_named_and_not_made(tmp_path, monkeypatch, name, zipped):
    monkeypatch.chdir(tmp_path)
    file = save({"x": torch.ones(2), "y": HARM[name]}, tmp_path / "x.bin", zipped)
    refused(file, name, "only tensors are loaded", "may run code")
    assert not (tmp_path / "harmed").exists()


def packed(pickled, file, compress=zipfile.ZIP_STORED, **records):
    """Write a zip with this pickle, as torch does."""
    with zipfile.ZipFile(file, "w", compress) as zipped:
        zipped.writestr("x/data.pkl", pickled)
        for name, content in {"data/0": bytes(16), "version": b"3\n", **records}.items():
            zipped.writestr(f"x/{name}", content)
    return file


def tensor(offset=0, size=4, stride=1, key=b"0", count=4):
    """Return the opcodes of `{"w": tensor}`, four numbers of float32."""
    storage = b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\n"
    storage += b"X\x01\x00\x00\x00" + key + b"X\x03\x00\x00\x00cpuJ" + struct.pack("<i", count)
    at, rows, step = (b"J" + struct.pack("<i", number) for number in (offset, size, stride))
    made = b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"tQ" + at
    made += rows + b"\x85" + step + b"\x85" + b"\x89}tR"
    return b"\x80\x02}X\x01\x00\x00\x00w" + made + b"s."


PICKLES = {
    "nothing": b"",
    "text of 4 GB": b"\x80\x02X\xff\xff\xff\xffa.",
    "storage beyond the file": tensor(count=10**6, size=10**6),
    "a size of 2^31": tensor(size=2**31 - 1, stride=2**31 - 1),
    "a tensor without numbers": b"\x80\x02}X\x01\x00\x00\x00wctorch._utils\n"
    b"_rebuild_meta_tensor_no_storage\n(ctorch\nfloat32\nK\x04\x85K\x01\x85\x89tRs.",
}


@pytest.mark.parametrize("case", PICKLES)
def test_a_hostile_pickle_is_refused(tmp_path, monkeypatch, case):
    monkeypatch.chdir(tmp_path)
    refused(packed(PICKLES[case], tmp_path / "x.bin"))
    (tmp_path / "y.bin").write_bytes(PICKLES[case] or b"\x80")
    refused(tmp_path / "y.bin")
    assert {file.name for file in tmp_path.iterdir()} == {"x.bin", "y.bin"}


def test_compressed_or_swapped_records_are_read_as_they_are_meant(tmp_path):
    numbers = {"data/0": struct.pack("<4f", 1, 2, 3, 4), "byteorder": b"little"}
    file = packed(tensor(), tmp_path / "x.bin", zipfile.ZIP_DEFLATED, **numbers)
    assert open_file(file)["w"].tolist() == [1, 2, 3, 4]
    numbers = {"data/0": struct.pack(">4f", 1, 2, 3, 4), "byteorder": b"big"}
    assert open_file(packed(tensor(), tmp_path / "y.bin", **numbers))["w"].tolist() == [1, 2, 3, 4]


@FORMATS
def test_a_file_that_ends_early_or_is_something_else_is_refused(tmp_path, zipped):
    state = {"w": torch.ones(40), "v": torch.ones(3)}
    content, file = save(state, tmp_path / "x.bin", zipped).read_bytes(), tmp_path / "y.bin"
    starts = [content[:length] for length in range(0, len(content), 7)]
    for start in [*starts, b"<html>", b"version https://git-lfs.github.com/spec/v1\n"]:
        file.write_bytes(start)
        refused(file)
