"""How tensors are divided over ranks: parts make the whole, and odd sizes are refused."""

from types import SimpleNamespace

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from ptrun.backbone.tensor_parallel import PATTERNS, Cut, cut_of, pattern_of
from ptrun.errors import UserError

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
BERT_LAYER = "bert.encoder.layer.3"
T5_LAYER = "decoder.block.2.layer"
NAMES = [
    ("bert", f"{BERT_LAYER}.attention.self.query.bias", Cut(0)),
    ("bert", f"{BERT_LAYER}.attention.output.dense.weight", Cut(1)),
    ("bert", f"{BERT_LAYER}.attention.output.dense.bias", Cut()),
    ("bert", f"{BERT_LAYER}.output.dense.weight", Cut(1)),
    ("bert", "bert.pooler.dense.weight", Cut()),
    ("electra", "discriminator_predictions.dense.weight", Cut()),
    ("t5", f"{T5_LAYER}.1.EncDecAttention.k.weight", Cut(0)),
    ("t5", f"{T5_LAYER}.2.DenseReluDense.wi_1.weight", Cut(0)),
    ("t5", f"{T5_LAYER}.2.DenseReluDense.wo.weight", Cut(1)),
    ("t5", "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight", Cut()),
    ("t5", "lm_head.weight", Cut(0)),
    ("gpt2", "transformer.h.1.attn.c_attn.weight", Cut(0, 3, turned=True)),
    ("gpt2", "transformer.h.1.attn.c_attn.bias", Cut(0, 3)),
    ("gpt2", "transformer.h.1.mlp.c_proj.weight", Cut(1, 1, turned=True)),
    ("blocklm", "transformer.wbe.weight", Cut()),
    ("megatron", "model.layers.0.self_attn.v_proj.bias", Cut(0)),
    ("megatron", "model.layers.0.self_attn.out_proj.bias", Cut()),
    ("megatron", "model.layers.0.fc1.weight", Cut(0)),
    ("llama", "model.layers.0.mlp.down_proj.weight", Cut(1)),
    ("llama", "lm_head.weight", Cut()),
    ("qwen3", "model.layers.0.self_attn.q_norm.weight", Cut(summed=True)),
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


@pytest.mark.parametrize(("kind", "name", "cut"), NAMES)
def test_a_name_tells_how_it_is_cut(kind, name, cut):
    turned = kind in ("gpt2", "blocklm") and "c_" in name
    assert cut_of(PATTERNS[kind], name, turned=turned) == cut


def config(**own):
    sizes = {"model_type": "t5", "num_attention_heads": 6, "d_ff": 1024, "vocab_size": 32128}
    return SimpleNamespace(**{**sizes, **own})


def test_heads_that_do_not_divide_are_refused():
    with pytest.raises(UserError, match=r"has 6 heads.*model_parallel=1 or 2\.$"):
        pattern_of(config(), 4)


def test_a_kind_that_is_not_divided_is_refused():
    with pytest.raises(UserError, match="of type albert cannot be divided; allowed: bert,"):
        pattern_of(config(model_type="albert"), 2)


@pytest.mark.parametrize(("words", "cut"), [(32128, True), (2441, False)])
def test_an_output_matrix_is_cut_where_its_words_divide(words, cut):
    assert pattern_of(config(vocab_size=words, num_attention_heads=8), 4).output is cut
