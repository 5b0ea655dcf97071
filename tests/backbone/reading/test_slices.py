"""What is read slice by slice is what plain loading reads, tied or not."""

import json
import logging

import pytest
import torch
from safetensors.torch import load_file, save_file

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from tests.conftest import write_tiny


def loaded(folder, kind="none"):
    backbone = PretrainedBackbone(name="x", path=str(folder), dtype="fp32")
    if kind != "none":
        backbone.quantize(kind)
    backbone.load()
    return backbone


def change(folder, edit, **config):
    """Edit the tensors and the configuration of a folder; a value of None removes its key."""
    tensors = load_file(folder / "model.safetensors")
    edit(tensors)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    content = json.loads((folder / "config.json").read_text()) | config
    kept = {key: value for key, value in content.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(kept))


@pytest.mark.parametrize("stored", ["another", "equal", "none"])
def test_an_output_matrix_of_its_own_is_read_as_plain_loading_reads_it(tmp_path, stored):
    folder = write_tiny(tmp_path / "gpt2", "gpt2")

    def edit(tensors):
        words = tensors["transformer.wte.weight"]
        if stored != "none":
            tensors["lm_head.weight"] = words + (stored == "another")

    change(folder, edit, tie_word_embeddings=None)
    plain, slices = loaded(folder), loaded(folder, "int8")
    ours, theirs = (one.model.get_output_embeddings().weight for one in (slices, plain))
    assert torch.equal(ours, theirs)
    tied = slices.model.get_output_embeddings().weight is slices.model.transformer.wte.weight
    assert tied is (stored != "another")


@pytest.mark.parametrize("kind", ["t5", "mt5"])
@pytest.mark.parametrize("quantization", ["none", "int8"])
def test_a_t5_without_its_output_matrix_is_refused(tmp_path, kind, quantization):
    folder = write_tiny(tmp_path / kind, kind)
    change(folder, lambda tensors: tensors.pop("lm_head.weight"), tie_word_embeddings=False)
    with pytest.raises(UserError, match=r"lack lm_head\.weight.*tie_word_embeddings=false"):
        loaded(folder, quantization)


def test_a_t5_whose_output_is_its_embeddings_needs_no_matrix(tmp_path):
    folder = write_tiny(tmp_path / "t5", "t5")
    change(folder, lambda tensors: tensors.pop("lm_head.weight"), tie_word_embeddings=True)
    assert loaded(folder).has_head


def test_unread_tensors_are_counted_and_named(tmp_path, caplog):
    folder = write_tiny(tmp_path / "bert", "bert")

    def edit(tensors):
        tensors |= {f"other.{i}.weight": torch.ones(2) for i in range(4)}
        tensors["bert.embeddings.position_ids"] = torch.arange(4)

    change(folder, edit)
    caplog.set_level(logging.INFO, "ptrun")
    loaded(folder)
    (line,) = [one for one in caplog.messages if "not read" in one]
    assert str(folder) in line and "other.0.weight" in line and "position_ids" not in line
    assert " 6 tensors of the files are not read" in line  # with the head of sentence pairs


def test_a_model_that_is_read_whole_has_no_line(tmp_path, caplog):
    caplog.set_level(logging.INFO, "ptrun")
    loaded(write_tiny(tmp_path / "gpt2", "gpt2"))
    assert not [one for one in caplog.messages if "not read" in one]
