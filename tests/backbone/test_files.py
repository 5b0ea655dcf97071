"""Folders that are no model folders yet are told how to become one."""

import pytest
import torch
from safetensors.torch import save_file

from ptrun.backbone import files
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from tests.importing import glm_shards, megatron_shards


@pytest.mark.parametrize("kind", ["bin", "safetensors"])
def test_a_snapshot_of_glm_is_to_be_imported(tmp_path, kind):
    folder = glm_shards.write_hub(glm_shards.whole_state(1, 64), tmp_path / "glm-2b", kind)
    with pytest.raises(UserError, match=f"\nptrun import glm {folder} --out DIR"):
        PretrainedBackbone(name="x", path=str(folder))


def test_fairseqs_parts_are_to_be_imported(tmp_path):
    folder = megatron_shards.write_parts(megatron_shards.whole_state(1), tmp_path / "megatron", 2)
    with pytest.raises(UserError, match=f"\nptrun import megatron {folder} --out DIR"):
        PretrainedBackbone(name="x", path=str(folder))


@pytest.mark.parametrize("inside", [False, True])
def test_ranks_are_to_be_imported(tmp_path, inside):
    folder = glm_shards.write_ranks(glm_shards.whole_state(1, 64), tmp_path / "glm", 2)
    folder = folder / "9" if inside else folder
    with pytest.raises(UserError, match=rf"\nptrun import glm\|cpm2 {folder} --out DIR"):
        PretrainedBackbone(name="x", path=str(folder))


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
