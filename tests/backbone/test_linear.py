"""fp32 products with oneDNN on a CPU of AMD: the same numbers up to rounding, in fewer seconds."""

import copy

import pytest
import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from ptrun.backbone import linear as products
from ptrun.hardware.torch_engine import TorchEngine
from ptrun.method.peft import detach, peft_config, tuned_by
from ptrun.method.ptuning_v2 import PTuningV2
from tests.small_runs import conll03, member

INPUTS, OUTPUTS = 384, 400
KINDS = {
    "linear": lambda: nn.Linear(INPUTS, OUTPUTS),
    "without bias": lambda: nn.Linear(INPUTS, OUTPUTS, bias=False),
    "transposed": lambda: Conv1D(OUTPUTS, INPUTS),
}


@pytest.fixture
def amd(monkeypatch):
    if not torch._C._has_mkldnn:
        pytest.skip("oneDNN: this torch has none")
    monkeypatch.setattr(products, "_is_amd", lambda: True)


def pair(make):
    """Return a map, and its copy that multiplies with oneDNN."""
    torch.manual_seed(1)
    plain = make()
    other = copy.deepcopy(plain)
    products.use_onednn(other)
    assert type(other) is not type(plain)
    return plain, other


def passed(module, x):
    """Return the output, and the gradients of the input and of all parameters."""
    x = x.clone().requires_grad_(True)
    out = module(x)
    weights = torch.linspace(-1, 1, out.numel()).view(out.shape).to(out.dtype)
    return out, torch.autograd.grad((out * weights).sum(), [x, *module.parameters()])


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("shape", [(96,), (6, 16), (2, 3, 7)])
def test_outputs_and_gradients_are_those_of_the_exact_map(amd, make, shape):
    plain, other = pair(make)
    x = torch.randn(*shape, INPUTS)
    exact = passed(plain.double(), x.double())
    found = passed(other, x)
    torch.testing.assert_close(found[0].double(), exact[0], atol=1e-5, rtol=1e-5)
    for one, wanted in zip(found[1], exact[1], strict=True):
        torch.testing.assert_close(one.double(), wanted, atol=1e-4, rtol=1e-5)


def test_strided_rows_and_gradients_are_read_as_they_lie(amd):
    plain, other = pair(KINDS["linear"])
    x = torch.randn(8, 12, INPUTS).transpose(0, 1)[:, ::2]
    wanted, found = passed(plain, x), passed(other, x)
    torch.testing.assert_close(found[0], wanted[0], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found[1], wanted[1], atol=1e-4, rtol=1e-4)


def test_a_frozen_map_keeps_no_input_for_the_backward_pass(amd):
    _, other = pair(KINDS["linear"])
    other.requires_grad_(False)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.shape) or t, lambda t: t):
        other(torch.randn(16, INPUTS, requires_grad=True))
    assert kept == [other.weight.shape]


@pytest.mark.parametrize("rows", [1, 3])
def test_few_rows_are_multiplied_as_before(amd, rows):
    plain, other = pair(KINDS["linear"])
    x = torch.randn(rows, INPUTS)
    assert torch.equal(other(x), plain(x))


def test_half_precision_and_autocast_are_as_before(amd):
    plain, other = pair(KINDS["linear"])
    x = torch.randn(16, INPUTS)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(other(x), plain(x))
        assert other(x).dtype is torch.bfloat16
    x = x.bfloat16()
    assert torch.equal(other.bfloat16()(x), plain.bfloat16()(x))


def test_small_maps_and_other_classes_stay(amd):
    class Own(nn.Linear):
        pass

    model = nn.ModuleList([nn.Linear(128, 128), Own(INPUTS, OUTPUTS), nn.Embedding(999, INPUTS)])
    before = [type(module) for module in model]
    products.use_onednn(model)
    assert [type(module) for module in model] == before


def test_another_cpu_multiplies_as_torch_does(monkeypatch):
    monkeypatch.setattr(products, "_is_amd", lambda: False)
    linear = nn.Linear(INPUTS, OUTPUTS)
    products.use_onednn(linear)
    assert type(linear) is nn.Linear


def test_the_vendor_decides(monkeypatch):
    capability = torch.backends.cpu.get_cpu_capability()
    for text, wanted in (("AuthenticAMD", capability == "AVX512"), ("GenuineIntel", False)):
        monkeypatch.setattr(products.Path, "read_text", lambda *_, text=text, **__: text)
        products._is_amd.cache_clear()
        assert products._is_amd() == (wanted and torch._C.has_mkl and torch._C._has_mkldnn)
    products._is_amd.cache_clear()


def trained(backbone, data, made):
    members = [member(make, backbone, data, lr=1e-3) for make in made]
    engine = TorchEngine(
        backbone, device="cpu", precision="fp32", token_budget=60, checkpointing=False
    )
    engine.place([one.method for one in members])
    engine.fit(members)
    return [one.journal.losses() for one in members]


def test_a_run_learns_the_same_with_it_alone_and_beside_others(amd, tiny, data_dir, monkeypatch):
    data = conll03(data_dir)
    make = lambda *given: PTuningV2(*given, length=3)  # noqa: E731
    plain = trained(tiny(), data, [make])
    monkeypatch.setattr(products, "_SMALLEST", 1)
    backbone = tiny()
    alone, both = trained(backbone, data, [make]), trained(tiny(), data, [make, make])
    assert any(isinstance(module, products._OneDnnMap) for module in backbone.model.modules())
    torch.testing.assert_close(alone, plain, atol=1e-5, rtol=1e-5)
    assert both == [alone[0], alone[0]]


def test_peft_finds_the_maps_as_torch_made_them(amd, tiny, monkeypatch):
    """GLoRA asks for exactly `nn.Linear`; the layers then hold maps that use oneDNN."""
    monkeypatch.setattr(products, "_SMALLEST", 1)
    backbone = tiny()
    products.use_onednn(backbone.model)
    kinds = [type(module) for module in backbone.model.modules()]
    assert kinds.count(products._with_onednn(nn.Linear)) > 10
    config = peft_config({"peft_type": "GLORA", "target_modules": ["query"]})
    tuner = tuned_by(backbone, config, 0)
    assert {type(layer.base_layer) for layer in tuner.layers.values()} == {
        products._with_onednn(nn.Linear)
    }
    detach(backbone.model)
    assert [type(module) for module in backbone.model.modules()] == kinds


def test_a_second_derivative_is_refused(amd):
    _, other = pair(KINDS["linear"])
    x = torch.randn(8, INPUTS, requires_grad=True)
    (first,) = torch.autograd.grad(other(x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()
