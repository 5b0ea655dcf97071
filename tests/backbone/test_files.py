"""Folders that are no model folders yet are told how to become one."""

import pytest
import torch
from safetensors.torch import save_file

from ptrun.backbone import files
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from tests.papers import glm_shards


@pytest.mark.parametrize("kind", ["bin", "safetensors"])
def test_a_snapshot_of_glm_is_to_be_imported(tmp_path, kind):
    folder = glm_shards.write_hub(glm_shards.whole_state(1, 64), tmp_path / "glm-2b", kind)
    with pytest.raises(UserError, match=f"\nptrun import glm {folder} --out DIR"):
        PretrainedBackbone(name="x", path=str(folder))


def test_a_folder_without_a_model_is_told_of_importing(tmp_path):
    glm_shards.write_ranks(glm_shards.whole_state(1, 64), tmp_path / "glm", 2)
    with pytest.raises(UserError, match=r"no model there; .* ptrun import converts checkpoints of"):
        PretrainedBackbone(name="x", path=str(tmp_path / "glm"))


ODD = {
    "a list": ("[]", "expected an object"),
    "not JSON": ("{", "not JSON"),
    "deep": ("[" * 100_000, "not JSON"),
    "a million layers": ('{"num_layers": 1000000}', "1,000,000, but the weights are 1 tensors"),
}


@pytest.mark.parametrize("name", ODD)
def test_an_odd_configuration_is_refused_at_once(tmp_path, name):
    text, told = ODD[name]
    (tmp_path / "config.json").write_text(text)
    save_file({"x": torch.ones(1)}, tmp_path / "model.safetensors")
    with pytest.raises(UserError, match=f"config.json: .*{told}"):
        files.locate(None, str(tmp_path))
