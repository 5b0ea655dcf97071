"""Pickled tensors: damage is refused in words, no name is imported, and whole files come back."""

import pickletools
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ptrun.errors import UserError
from ptrun.hub.pickled import open_file
from tests.hub.test_pickled_converting import packed, save, tensor

STATE = {"w": torch.arange(6.0).view(2, 3).half(), "v": torch.ones(3, dtype=torch.bool)}
OPCODES = [ord(one.code) for one in pickletools.opcodes]
WORDS = [b"os\nsystem\n", b"torch\nHalfStorage\n", b"torch._utils\n_rebuild_tensor_v2\n"]


def read(file):
    """Return the tensors of a file, or None if it is refused."""
    before = set(sys.modules)
    try:
        held = open_file(file)
    except UserError as error:
        assert str(error).startswith(str(file))
        held = None
    assert all("encodings" in name for name in set(sys.modules) - before)  # zipfile decodes names
    if held is not None:
        assert all(isinstance(one, torch.Tensor) for one in held.values())
        sum(one.sum() for one in held.values() if one.numel() < 10**6)  # all of it can be read
    return held


@pytest.mark.parametrize("zipped", [True, False])
@given(data=st.data())
def test_a_file_with_changed_bytes_is_read_or_refused(place, zipped, data):
    whole = bytearray(save(STATE, place / "x.bin", zipped).read_bytes())
    for at in data.draw(st.lists(st.integers(0, len(whole) - 1), min_size=1, max_size=4)):
        whole[at] = data.draw(st.integers(0, 255))
    (place / "y.bin").write_bytes(whole)
    read(place / "y.bin")


@given(pieces=st.lists(st.sampled_from(OPCODES) | st.binary(max_size=6) | st.sampled_from(WORDS)))
def test_any_opcodes_are_read_or_refused(place, pieces):
    body = b"".join(bytes([p]) if isinstance(p, int) else p for p in pieces)
    read(packed(b"\x80\x02" + body + b".", place / "x.bin"))
    (place / "y.bin").write_bytes(b"\x80\x02" + body + b".")
    read(place / "y.bin")


@given(offset=st.integers(-3, 5), size=st.integers(-3, 6), stride=st.integers(-3, 6))
def test_a_tensor_is_read_where_it_lies_in_its_storage(place, offset, size, stride):
    held = read(packed(tensor(offset, size, stride), place / "x.bin"))
    inside = min(offset, size, stride) >= 0 and (not size or offset + (size - 1) * stride < 4)
    assert (held is not None) == inside or size == 0
