"""What an adaptation saves, its state and its folder: whole, or not there."""

import pytest
import torch
from safetensors import SafetensorError

from ptrun.errors import UserError
from workshop.adapt import read_state, save_folder, write_state

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


class Model:
    """Writes its weights, or finds the disk full halfway."""

    def __init__(self, full=False):
        self.full = full

    def cpu(self):
        return self

    def save_pretrained(self, place):
        (place / "config.json").write_text("{}")
        if self.full:
            raise SafetensorError("I/O error: No space left on device (os error 28)")


def save(out, model):
    save_folder(out, model, lambda place: (place / "tokenizer.json").touch(), {"x": 1}, [])


def test_a_full_disk_is_named_and_nothing_is_left(tmp_path):
    with pytest.raises(OSError, match="No space left on device") as raised:
        save(tmp_path / "out", Model(full=True))
    assert raised.value.filename == str(tmp_path / "out.part") and not list(tmp_path.iterdir())


def test_a_half_folder_of_a_killed_process_is_replaced(tmp_path):
    (tmp_path / "out.part").mkdir()
    (tmp_path / "out.part" / "old").touch()
    (tmp_path / "out").mkdir()
    save(tmp_path / "out", Model())
    names = {file.name for file in (tmp_path / "out").iterdir()}
    assert names == {"config.json", "tokenizer.json", "result.json"}
    assert [file.name for file in tmp_path.iterdir()] == ["out"]
