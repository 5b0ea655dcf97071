"""Megatron-11B on XGLM: parity with a plain reference, and its invariants."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from transformers import XGLMConfig, XGLMForCausalLM

from ptrun.config import build
from ptrun.config.compose import compose_run
from ptrun.papers.models import MegatronConfig, MegatronLM
from tests.backbone.inputs import LENGTHS, text
from tests.families import PaperBackbone
from tests.papers import megatron_reference
from tests.readings import method_of

HEADS, WIDTH = 2, 32


def state(backbone):
    return megatron_reference.original(dict(backbone.model.named_parameters()))


def wanted(backbone, given):
    return [
        megatron_reference.logits(state(backbone), given.ids[row, :length], HEADS)
        for row, length in enumerate(LENGTHS)
    ]


@pytest.mark.parametrize("side", ["right", "left"])
def test_logits_are_the_plain_references(tiny, side):
    """A running count of real tokens numbers them, whichever side is padded."""
    backbone = tiny("megatron")
    found = backbone.forward(text(backbone, side)).logits.split(LENGTHS)
    for own, theirs in zip(found, wanted(backbone, text(backbone)), strict=True):
        torch.testing.assert_close(own, theirs, atol=1e-5, rtol=0)


def test_raw_embeddings_are_scaled_with_the_prompts_among_them(tiny):
    backbone = tiny("megatron")
    given = text(backbone)
    raw = backbone.embed(given.ids)
    table = state(backbone)["decoder.embed_tokens.weight"]
    torch.testing.assert_close(raw, table[given.ids], atol=0, rtol=0)
    raw[:, 1] = torch.randn(WIDTH)  # as a learned vector
    found = backbone.forward(replace(given, ids=None, embeddings=raw)).logits.split(LENGTHS)
    for row, length in enumerate(LENGTHS):
        theirs = megatron_reference.logits(state(backbone), None, HEADS, raw[row, :length])
        torch.testing.assert_close(found[row], theirs, atol=1e-5, rtol=0)


def test_a_last_norm_makes_it_plain_xglm_and_another_model(tiny):
    backbone = tiny("megatron")
    given = text(backbone)
    sizes = backbone.model.config.to_dict()
    plain = XGLMForCausalLM(XGLMConfig(**{k: v for k, v in sizes.items() if k != "model_type"}))
    normed = MegatronLM(MegatronConfig(**{**sizes, "final_norm": True}))
    for model in (plain, normed):
        missing, unknown = model.load_state_dict(backbone.model.state_dict(), strict=False)
        assert set(missing) == {"model.layer_norm.weight", "model.layer_norm.bias"}
        assert not unknown
        model.eval()
    ids = given.ids[:1, : LENGTHS[0]]
    torch.testing.assert_close(plain(ids).logits, normed(ids).logits, atol=0, rtol=0)
    own = backbone.forward(given).logits[: LENGTHS[0]]
    assert (normed(ids).logits[0] - own).abs().max() > 0.1


def test_published_counts_need_no_weights(data_dir):
    """Parameters of the model, and of P-tuning's encoder for six vectors."""
    words = ["backbone=megatron_11b", "method=ptuning_lama", "task=lama", f"data_dir={data_dir}"]
    composed = compose_run(words)
    config = composed.config
    backbone = build.build("backbone", config["backbone"])
    assert backbone.size() == 11_032_240_128 == backbone.parameters
    task = build.build("task", config["task"], config["data_dir"], None)
    with torch.device("meta"):
        method = method_of(composed, backbone, task)
    assert method.learned_parameters()["total"] == 132_194_304
    assert method.prompt.table.numel() == 18_432
    normed = {**config["backbone"]["config"], "final_norm": True}
    assert PaperBackbone(name="normed", config=normed).size() == 11_032_240_128 + 6_144
    shape = backbone.shape
    assert 2 * shape.layers * shape.heads * shape.head_size == 442_368


def test_dropout_inside_the_feed_forward_has_keys_too(tiny_folder, tmp_path):
    """The released model has none there; a folder may say otherwise."""
    folder = shutil.copytree(tiny_folder("megatron"), tmp_path / "wide")
    config = json.loads((folder / "config.json").read_text())
    quiet = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.3}
    (folder / "config.json").write_text(json.dumps(config | quiet))
    backbone = PaperBackbone(name="wide", path=str(folder))
    backbone.load()
    given = text(backbone)
    keyed = replace(given, keys=torch.arange(len(LENGTHS)))
    first, again = (backbone.forward(keyed).logits for _ in range(2))
    assert torch.equal(first, again)
    assert (first - backbone.forward(given).logits).abs().max() > 0.1
