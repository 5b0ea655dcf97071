import json
import os
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from ptrun.backbone import files as module
from ptrun.backbone.files import fingerprint, locate
from ptrun.errors import UserError


@pytest.fixture
def folder(tmp_path, tiny_folder, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return shutil.copytree(tiny_folder("bert"), tmp_path / "model")


def flip(file, place):
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)


def test_a_moved_folder_keeps_it(folder, tmp_path):
    assert fingerprint(shutil.copytree(folder, tmp_path / "moved")) == fingerprint(folder)


@pytest.mark.parametrize("place", [-1, -1001, -5003])
@pytest.mark.parametrize("kept_above", [0, 2**26])
def test_every_bit_of_the_weights_is_in_it(folder, monkeypatch, place, kept_above):
    monkeypatch.setattr(module, "_KEPT_ABOVE", kept_above)
    first = fingerprint(folder)
    flip(folder / "model.safetensors", place)
    assert fingerprint(folder) != first


def test_a_shuffled_vocabulary_changes_it(folder):
    first, file = fingerprint(folder), folder / "tokenizer.json"
    content = json.loads(file.read_text())
    vocabulary = content["model"]["vocab"]
    (one, i), (other, j) = list(vocabulary.items())[-2:]
    vocabulary[one], vocabulary[other] = j, i
    file.write_text(json.dumps(content))
    assert fingerprint(folder) != first


def test_a_large_file_is_read_once_while_size_and_time_stay(folder, monkeypatch, tmp_path):
    monkeypatch.setattr(module, "_KEPT_ABOVE", 0)
    first = fingerprint(folder)
    read = []
    monkeypatch.setattr(module, "_digest", lambda file: read.append(file) or "0")
    assert fingerprint(folder) == first and not read
    os.utime(folder / "model.safetensors", ns=(0, 1))
    assert fingerprint(folder) != first and len(read) == 1
    for file in (tmp_path / "cache" / "ptrun" / "weights").iterdir():
        file.write_text("damaged")
    fingerprint(folder)
    assert len(read) == 2


def test_a_kept_hash_that_was_damaged_is_not_believed(folder, monkeypatch, tmp_path):
    monkeypatch.setattr(module, "_KEPT_ABOVE", 0)
    first = fingerprint(folder)
    (file,) = (tmp_path / "cache" / "ptrun" / "weights").iterdir()
    text = file.read_text()
    for place in (0, 40, 63, 64, 65, len(text) - 1):
        flip(file, place)
        assert fingerprint(folder) == first and file.read_text() == text


def test_parts_of_the_weights_may_not_be_swapped(tmp_path, folder):
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    for number, some in enumerate((names[::2], names[1::2])):
        save_file({name: tensors[name] for name in some}, folder / f"{number}.safetensors")
    first = fingerprint(folder)
    name = next(name for name in names if tensors[name].dtype == torch.float32)
    tensors[name] = tensors[name] + 1
    save_file({name: tensors[name] for name in names[::2]}, folder / "0.safetensors")
    assert fingerprint(folder) != first


def test_a_pipe_and_an_endless_header_are_refused(folder):
    os.mkfifo(folder / "z.safetensors")
    with pytest.raises(UserError, match=r"z.safetensors: not a file"):
        locate(None, str(folder))
    (folder / "z.safetensors").unlink()
    (folder / "z.safetensors").write_bytes((2**40).to_bytes(8, "little"))
    with pytest.raises(UserError, match=r"z.safetensors: damaged"):
        locate(None, str(folder))
