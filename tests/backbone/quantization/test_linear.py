"""Quantized linear maps inside every family give what their dense matrices give."""

from dataclasses import replace
from itertools import cycle, product

import pytest
import torch
from torch import nn

from ptrun.backbone.quantization import QuantizedLinear
from tests.backbone.inputs import KINDS, text
from tests.families import PaperBackbone
from tests.tiers import tiered

FIRST = ("bert", "gpt2", "t5")
FORMATS = ["int8", "nf4"]
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:bitsandbytes.*")


def quantized(folder, kind, format_, dtype=torch.float32):
    backbone = PaperBackbone(name=kind, path=str(folder(kind)), dtype="fp32")
    backbone.quantize(format_)
    backbone.load(dtype)
    return backbone


def as_dense(tiny, quantized):
    """Return the usual backbone with the dense matrices of a quantized one."""
    backbone = tiny(quantized.config["model_type"])
    maps = backbone.architecture.linear_maps(backbone.model)
    for name in {id(m.weight): name for name, m in maps.items()}.values():  # ALBERT shares them
        module = maps[name]
        held = quantized.model.get_submodule(name)
        matrix = held.matrix().T if held.turned else held.matrix()
        assert 0 < (matrix - module.weight).norm() < 0.2 * module.weight.norm()
        module.weight.data.copy_(matrix)
    return backbone


def outputs(backbone):
    """Return outputs and the gradient of raw embeddings, in training with dropout."""
    given = text(backbone)
    embeddings = backbone.embed(given.ids).detach().requires_grad_(True)
    given = replace(given, ids=None, embeddings=embeddings, keys=torch.arange(len(embeddings)))
    output = backbone.forward(given)
    loss = output.hidden.square().sum()
    loss.backward()
    return output.hidden.detach(), output.logits.detach(), embeddings.grad


@pytest.mark.parametrize(
    ("kind", "format_"),
    tiered(
        [*product(FIRST, FORMATS), *zip([k for k in KINDS if k not in FIRST], cycle(FORMATS))],
        lambda kind, _: kind in FIRST,
    ),
)
def test_it_is_the_model_of_its_dense_matrices(tiny, tiny_folder, kind, format_):
    own = quantized(tiny_folder, kind, format_)
    for ours, theirs in zip(outputs(own), outputs(as_dense(tiny, own)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", tiered(KINDS, lambda kind: kind in FIRST))
def test_parameters_are_counted_and_all_linear_maps_of_layers_are_held(tiny, tiny_folder, kind):
    plain, own = tiny(kind), quantized(tiny_folder, kind, "int8")
    assert own.size() == plain.size()
    assert [n for n, _ in own.model.named_parameters()] == [
        n for n, _ in plain.model.named_parameters()
    ]
    maps = own.architecture.linear_maps(own.model)
    assert maps and all(isinstance(module, QuantizedLinear) for module in maps.values())
    tensors = [*own.model.parameters(), *own.model.buffers()]
    assert {t.shape for t in tensors if t.is_meta} == {m.weight.shape for m in maps.values()}


@pytest.mark.parametrize("format_", FORMATS)
def test_scales_survive_a_cast_and_bf16_computes_in_bf16(tiny_folder, format_):
    own = quantized(tiny_folder, "t5", format_)
    before = own.model.encoder.block[0].layer[0].SelfAttention.q.matrix()
    own.model.to(torch.bfloat16)
    held = own.model.encoder.block[0].layer[0].SelfAttention.q
    assert held.weight.dtype == held.matrix().dtype == torch.bfloat16
    assert torch.equal(held.matrix(), before.to(torch.bfloat16))
    assert outputs(own)[0].dtype == torch.bfloat16


def test_the_backward_pass_keeps_no_dense_matrix():
    module = QuantizedLinear(nn.Linear(64, 48, bias=False), "int8")
    module.hold(torch.randn(48, 64))
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(kept.append, lambda tensor: tensor):
        module(torch.randn(5, 64, requires_grad=True)).sum().backward()
    assert not kept
