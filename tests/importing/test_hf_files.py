"""Files of a model folder that are no files: each is refused before it is opened."""

import os
import shutil

import pytest

from ptrun.backbone import files
from ptrun.errors import UserError
from ptrun.importing.hf import import_hf

NAMES = ["model.safetensors", "model.safetensors.index.json", "pytorch_model.bin"]


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(files.locate("pocket_bert", None), folder)
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_a_pipe_is_refused(model, tmp_path, name):
    for file in model.glob("*.safetensors"):
        file.unlink()
    if name.endswith("json"):
        (model / "model-00001-of-00001.safetensors").write_bytes(b"")
    os.mkfifo(model / name)
    with pytest.raises(UserError):
        import_hf(str(model), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_file_of_the_system_is_not_copied(model, tmp_path):
    (model / "tokenizer.json").unlink()
    (model / "tokenizer.json").symlink_to("/proc/self/environ")
    with pytest.raises(UserError, match="a file of the system"):
        import_hf(str(model), tmp_path / "out")
    assert not (tmp_path / "out").exists()
