"""The saved state of an adaptation: whole, of the same settings, and without drafts beside it."""

import pytest
import torch

from ptrun.errors import UserError
from workshop.adapt import read_state, write_state

PLAN, TENSORS, PLAIN = {"rate": 0.1}, {"learned.w": torch.arange(6.0)}, {"step": 3}


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "made.state.safetensors"
    write_state(file, PLAN, TENSORS, PLAIN)
    return file


def test_what_was_saved_comes_back(file):
    tensors, plain = read_state(file, PLAN)
    assert torch.equal(tensors["learned.w"], TENSORS["learned.w"]) and plain == PLAIN


def test_drafts_of_killed_processes_are_removed(file):
    file.with_name(f".{file.name}.4711").write_text("half")
    other = file.with_name(".other.state.safetensors.4711")
    other.write_text("half")
    assert read_state(file, PLAN) is not None
    assert sorted(own.name for own in file.parent.iterdir()) == [other.name, file.name]


def test_damage_and_other_settings_are_named(file):
    with pytest.raises(UserError, match=r"rate was 0\.1, is 0\.2"):
        read_state(file, {"rate": 0.2})
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.write_bytes(content)
    with pytest.raises(UserError, match=r"made\.state\.safetensors: damaged"):
        read_state(file, PLAN)
