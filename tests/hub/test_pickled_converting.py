"""Pickled tensors come back to the bit in both formats, and nothing else in a pickle is made."""

import argparse
import io
import os
import pickle
import struct
import zipfile
from collections import OrderedDict
from pathlib import Path

import pytest
import torch

from ptrun.errors import UserError
from ptrun.hub.pickled import open_file

FORMATS = pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32]
DTYPES += [torch.int16, torch.int8, torch.uint8, torch.bool, torch.complex64, torch.complex128]


def save(held, file, zipped=True):
    torch.save(held, file, _use_new_zipfile_serialization=zipped)
    return file


def refused(file, *words, keys=()):
    with pytest.raises(UserError) as caught:
        open_file(file, keys)
    assert str(caught.value).startswith(str(file))
    for word in words:
        assert word in str(caught.value), caught.value


@FORMATS
def test_every_dtype_and_every_view_comes_back(tmp_path, zipped):
    whole = torch.randn(7, 5)
    held = {str(dtype): torch.randn(3, 4).mul(3).to(dtype) for dtype in DTYPES}
    held |= {"turned": whole.T, "part": whole[2:4, 1:], "copy": whole, "again": whole}
    held |= {
        "number": torch.tensor(2.5),
        "none": torch.zeros(0, 3),
        "one row": whole[:1].expand(4, 5),
    }
    held["parameter"] = torch.nn.Parameter(torch.randn(3))
    read = open_file(save(held, tmp_path / "x.bin", zipped))
    assert list(read) == list(held)
    for name, tensor in held.items():
        assert read[name].dtype == tensor.dtype and read[name].equal(tensor), name
    assert read["copy"].data_ptr() == read["again"].data_ptr() != read["number"].data_ptr()


@FORMATS
def test_the_state_of_a_module_is_read(tmp_path, zipped):
    state = torch.nn.Linear(3, 2).half().state_dict()  # an OrderedDict with an attribute
    read = open_file(save(state, tmp_path / "x.bin", zipped))
    assert all(read[name].equal(tensor) for name, tensor in state.items())


@FORMATS
def test_a_file_is_mapped_and_not_read(tmp_path, zipped):
    """63 of 64 MB stay on the disk."""
    file = save({"x": torch.ones(2**24)}, tmp_path / "x.bin", zipped)

    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")

    before = resident()
    tensor = open_file(file)["x"]
    assert tensor[-1] == 1 and resident() - before < 2**24


@FORMATS
def test_settings_and_random_states_beside_the_tensors_are_read_past(tmp_path, zipped):
    held = {
        "args": argparse.Namespace(lr=0.1),
        "sizes": [torch.Size([2])],
        "x": {"w": torch.ones(2)},
    }
    read = open_file(save(held, tmp_path / "x.pt", zipped), ("args", "x"))
    assert (read["args"].lr, read["sizes"], read["x"]["w"].tolist()) == (0.1, [(2,)], [1, 1])


class Calls:
    def __init__(self, *called):
        self.called = called

    def __reduce__(self):
        return self.called


HARM = [
    Calls(os.mkdir, ("harmed",)),
    Calls(eval, ("__import__('os').mkdir('harmed')",)),
    Calls(exec, ("open('harmed', 'w')",)),
    Calls(torch.load, ("x",)),
    Calls(torch.zeros, (2,)),
    torch.nn.Linear(1, 1),
]


@FORMATS
@pytest.mark.parametrize("harm", HARM, ids=range(len(HARM)))
def test_an_object_is_named_and_not_made(tmp_path, monkeypatch, harm, zipped):
    monkeypatch.chdir(tmp_path)
    file = save({"x": torch.ones(2), "y": harm}, tmp_path / "x.bin", zipped)
    refused(file, "only tensors are loaded", "may run code")
    assert not (tmp_path / "harmed").exists()


def packed(pickled, file, compress=zipfile.ZIP_STORED, **records):
    """Write a zip with this pickle, as torch does."""
    with zipfile.ZipFile(file, "w", compress) as zipped:
        zipped.writestr("x/data.pkl", pickled)
        for name, content in {"data/0": bytes(16), **records}.items():
            zipped.writestr(f"x/{name}", content)
    return file


def pid(key="0", count=4):
    """Return the opcodes of a storage of float32."""
    start = b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\n"
    named = b"X\x01\x00\x00\x00" + key.encode() + b"X\x03\x00\x00\x00cpu"
    return start + named + b"J" + struct.pack("<i", count) + b"tQ"


def tensor(offset=0, size=4, stride=1, **storage):
    """Return the opcodes of `{"w": tensor}`."""
    one = [b"J" + struct.pack("<i", number) for number in (offset, size, stride)]
    made = b"ctorch._utils\n_rebuild_tensor_v2\n(" + pid(**storage) + one[0]
    made += one[1] + b"\x85" + one[2] + b"\x85" + b"\x89}tR"
    return b"\x80\x02}X\x01\x00\x00\x00w" + made + b"s."


def test_the_opcodes_written_here_are_those_of_a_tensor(tmp_path):
    file = packed(tensor(), tmp_path / "x.bin")
    assert open_file(file)["w"].tolist() == [0, 0, 0, 0]


MKDIR = b"cos\nmkdir\n"
TEXT = b"X\x06\x00\x00\x00harmed"
PICKLES = {
    "INST": b"\x80\x02(" + TEXT + b"ios\nmkdir\n.",
    "OBJ": b"\x80\x02(" + MKDIR + TEXT + b"o.",
    "STACK_GLOBAL": b"\x80\x04X\x02\x00\x00\x00osX\x05\x00\x00\x00mkdir\x93" + TEXT + b"\x85R.",
    "NEWOBJ": b"\x80\x02" + MKDIR + TEXT + b"\x85\x81.",
    "NEWOBJ_EX": b"\x80\x04" + MKDIR + TEXT + b"\x85}\x92.",
    "EXT1": b"\x80\x02\x82\x01" + TEXT + b"\x85R.",
    "a call of text": b"\x80\x02" + TEXT + TEXT + b"\x85R.",
    "a call of a dtype": b"\x80\x02ctorch\nFloatStorage\n)R.",
    "a method of a dictionary": b"\x80\x02ccollections\nOrderedDict.fromkeys\n)R.",
    "state of a class": b"\x80\x02ccollections\nOrderedDict\n}X\x01\x00\x00\x00aK\x01sb.",
    "state of a function": b"\x80\x02ctorch._utils\n_rebuild_parameter\n}}\x86b.",
    "an item of a function": b"\x80\x02ctorch._utils\n_rebuild_parameter\nK\x01K\x02s.",
    "a memo of 2^31": b"\x80\x02}r\xff\xff\xff\x7f.",
    "text of 4 GB": b"\x80\x02X\xff\xff\xff\xffa.",
    "an old reference": b"\x80\x02Pstorage\n.",
    "a reference of another kind": b"\x80\x02X\x01\x00\x00\x00aQ.",
    "no value": b"\x80\x02.",
    "nothing": b"",
    "storage beyond the record": tensor(count=5, size=5),
    "tensor beyond the storage": tensor(size=5),
    "offset before the storage": tensor(offset=-1),
    "offset behind the storage": tensor(offset=1),
    "a negative step": tensor(stride=-1),
    "a negative size": tensor(size=-4),
    "a size of 2^31": tensor(size=2**31 - 1, stride=2**31 - 1),
    "no such record": tensor(key="1"),
    "a path as the record": tensor(key="/"),
    "a list": b"\x80\x02].",
}


@pytest.mark.parametrize("case", PICKLES)
def test_a_hostile_pickle_is_refused(tmp_path, monkeypatch, case):
    monkeypatch.chdir(tmp_path)
    refused(packed(PICKLES[case], tmp_path / "x.bin"))
    (tmp_path / "y.bin").write_bytes(PICKLES[case] or b"\x80")
    refused(tmp_path / "y.bin")
    assert {file.name for file in tmp_path.iterdir()} == {"x.bin", "y.bin"}


def test_compressed_or_swapped_records_are_refused(tmp_path):
    refused(packed(tensor(), tmp_path / "x.bin", zipfile.ZIP_DEFLATED), "damaged")
    refused(packed(tensor(), tmp_path / "y.bin", byteorder=b"big"), "damaged")


@FORMATS
def test_a_file_that_ends_early_is_refused_wherever_it_ends(tmp_path, zipped):
    whole = save({"w": torch.ones(40), "v": torch.ones(3)}, tmp_path / "x.bin", zipped).read_bytes()
    file = tmp_path / "y.bin"
    for length in range(0, len(whole), 7):
        file.write_bytes(whole[:length])
        refused(file)


@pytest.mark.parametrize("start", [b"", b"<html>", b"version https://git-lfs.github.com/spec/v1\n"])
def test_a_file_of_something_else_is_named(tmp_path, start):
    (tmp_path / "x.bin").write_bytes(start)
    refused(tmp_path / "x.bin")


def test_a_checksum_of_the_pickle_that_differs_is_noticed(tmp_path):
    file = save({"weight": torch.ones(4)}, tmp_path / "x.bin")
    file.write_bytes(file.read_bytes().replace(b"weight", b"height", 1))
    refused(file, "damaged")


def test_python_2_text_is_read(tmp_path):
    held = OrderedDict(w=torch.ones(2))
    written = io.BytesIO()
    torch.save(held, written, pickle_protocol=2, _use_new_zipfile_serialization=False)
    old = written.getvalue().replace(b"X\x01\x00\x00\x00w", b"U\x01w")
    (tmp_path / "x.bin").write_bytes(old)
    assert open_file(tmp_path / "x.bin")["w"].tolist() == [1, 1]
    assert pickle.SHORT_BINSTRING in old
