"""The folder of a pre-trained backbone: complete, or not there."""

import pytest
from safetensors import SafetensorError

from workshop.adapt import save_folder


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
