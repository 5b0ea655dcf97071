"""How tensors are divided over ranks: parts make the whole, and odd sizes are refused."""

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.backbone.tensor_parallel import Cut, cuts_of
from ptrun.errors import UserError
from tests.backbone.types import CAUSAL, config_of

CUTS = {
    "whole": Cut(),
    "column": Cut(0),
    "row": Cut(1),
    "fused": Cut(0, 3),
    "turned whole": Cut(None, 1, turned=True),
    "turned column": Cut(0, 1, turned=True),
    "turned row": Cut(1, 1, turned=True),
    "turned fused": Cut(0, 3, turned=True),
}
BERT_LAYER = "bert.encoder.layer.1"
T5_LAYER = "decoder.block.1.layer"
NAMES = [
    ("bert", f"{BERT_LAYER}.attention.self.query.bias", Cut(0)),
    ("bert", f"{BERT_LAYER}.attention.output.dense.weight", Cut(1)),
    ("bert", f"{BERT_LAYER}.attention.output.dense.bias", Cut()),
    ("bert", f"{BERT_LAYER}.output.dense.weight", Cut(1)),
    ("bert", "cls.predictions.transform.dense.weight", Cut()),
    ("electra", "discriminator_predictions.dense.weight", Cut()),
    ("t5", f"{T5_LAYER}.1.EncDecAttention.k.weight", Cut(0)),
    ("t5", f"{T5_LAYER}.2.DenseReluDense.wi_1.weight", Cut(0)),
    ("t5", f"{T5_LAYER}.2.DenseReluDense.wo.weight", Cut(1)),
    ("t5", "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight", Cut()),
    ("gpt2", "transformer.h.1.attn.c_attn.weight", Cut(0, 3, turned=True)),
    ("gpt2", "transformer.h.1.attn.c_attn.bias", Cut(0, 3)),
    ("gpt2", "transformer.h.1.mlp.c_proj.weight", Cut(1, 1, turned=True)),
    ("llama", "model.layers.0.mlp.down_proj.weight", Cut(1)),
    ("llama", "lm_head.weight", Cut(0)),
]


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_parts_are_the_whole(cut, ranks, tmp_path):
    whole = torch.arange(24.0 * 12).view((12, 24) if cut.turned else (24, 12))
    save_file({"w": whole}, tmp_path / "w.safetensors")
    with safe_open(tmp_path / "w.safetensors", "pt") as opened:
        parts = [cut.part(opened.get_slice("w"), rank, ranks) for rank in range(ranks)]
    for rank, part in enumerate(parts):  # a slice of a file and a tensor are cut alike
        assert torch.equal(part, cut.part(whole, rank, ranks))
    assert parts[0].numel() == whole.numel() // (1 if cut.axis is None else ranks)
    assert torch.equal(cut.joined(parts), whole)


def test_query_key_and_value_in_one_are_cut_each():
    fused = torch.arange(12.0)
    assert Cut(0, 3).part(fused, 1, 2).tolist() == [2, 3, 6, 7, 10, 11]


def cuts(backbone, parts=2):
    return cuts_of(backbone.model, backbone.architecture, parts)


@pytest.mark.parametrize(("kind", "name", "cut"), NAMES)
def test_a_name_tells_how_it_is_cut(tiny_folder, kind, name, cut):
    backbone = PretrainedBackbone(name=kind, path=str(tiny_folder(kind)))
    assert cuts(backbone, parts=1)[name] == cut


def of_type(kind, **sizes):
    return PretrainedBackbone(name=kind, hub="a/b", config=config_of(kind, **sizes).to_dict())


def test_a_norm_of_single_heads_is_whole_and_has_parts_of_its_gradient():
    names = cuts(of_type("gemma3_text"))
    assert names["model.layers.0.self_attn.q_norm.weight"] == Cut(summed=True)
    assert names["model.layers.0.input_layernorm.weight"] == Cut()


@pytest.mark.parametrize(
    ("kind", "sizes", "told"),
    [
        ("phi3", {}, "transformers divides them by colwise_gather_output, rowwise_split_input"),
        ("olmo2", {}, "transformers divides them by colwise_gather_output, rowwise_split_input"),
        ("qwen3_moe", {}, "transformers divides them by moe_tp_experts, packed_colwise"),
        ("youtu", CAUSAL["deepseek_v3"], "transformers leaves out model.layers.0.self_attn"),
        ("cohere", {"use_qk_norm": True}, "leaves out model.layers.0.self_attn.q_norm.weight"),
        ("opt", {}, "transformers has no plan for them"),
    ],
)
def test_a_plan_of_another_style_is_refused_by_name(kind, sizes, told):
    with pytest.raises(UserError, match=rf"models of type {kind} cannot be divided: .*{told}"):
        cuts(of_type(kind, **sizes))


@pytest.mark.parametrize(
    ("sizes", "told"),
    [
        ({"num_attention_heads": 6, "num_key_value_heads": 6}, "6 heads.*parallel=1 or 2"),
        ({"num_key_value_heads": 1}, r"has 1 key heads,.*model_parallel=1\.$"),
        ({"intermediate_size": 50}, "50 outputs of gate_proj.*50 inputs of down_proj"),
    ],
)
def test_sizes_that_do_not_divide_are_refused(sizes, told):
    with pytest.raises(UserError, match=told):
        cuts(of_type("gemma", **sizes), parts=4)


@pytest.mark.parametrize(("words", "cut"), [(32128, Cut(0)), (2441, Cut())])
def test_an_output_matrix_of_t5_is_cut_where_its_words_divide(words, cut):
    config = {"model_type": "t5", "vocab_size": words, "tie_word_embeddings": False}
    assert cuts(PretrainedBackbone(name="x", hub="a/b", config=config))["lm_head.weight"] == cut
