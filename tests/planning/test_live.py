"""Bytes that are alive, against hand counts and against what autograd keeps of real tensors."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from ptrun.backbone import dropout
from ptrun.method.fine_tuning import FineTuning
from ptrun.method.prompt_tuning import PromptTuning
from ptrun.method.ptuning_v2 import PTuningV2
from ptrun.planning.trace import (
    Fused,
    Live,
    TracedCase,
    _deep,
    _follow,
    _like,
    _rows,
    _trace,
    entered,
)
from ptrun.readout.base import collate
from tests.small_runs import sst2

B, T, H, FF = 2, 16, 8, 32
FP32 = 4


def meta(*shape, learned=False):
    return torch.empty(*shape, device="meta", requires_grad=learned)


def kept(function, *, known=()):
    """Return the bytes alive after a forward, its result aside."""
    with Live(known) as live, Fused():
        out = function()
        size = out.untyped_storage().nbytes()
        return live.now - size


def test_what_is_made_counts_once_and_goes_with_its_last_view():
    with Live() as live:
        made = meta(4, 8)
        view = made.t()
        assert (live.now, live.peak) == (128, 128)
        del made
        assert live.now == 128
        del view
        assert (live.now, live.peak) == (0, 128)


def test_a_frozen_map_keeps_nothing_and_a_learned_one_its_input():
    for learned, expected in ((False, 0), (True, B * T * H * FP32)):
        weight, x = meta(FF, H, learned=learned), meta(B, T, H, learned=True)
        own = kept(lambda w=weight, x=x: functional.linear(x * 2, w), known=[weight, x])
        assert own == expected


def test_a_gelu_keeps_its_input():
    x = meta(B, T, FF, learned=True)
    assert kept(lambda: functional.gelu(x * 2), known=[x]) == B * T * FF * FP32


def test_fused_attention_keeps_no_weights():
    given = [meta(B, 2, T, H, learned=True) for _ in range(3)]
    mask = torch.ones(B, 1, 1, T, dtype=torch.bool, device="meta")
    own = kept(
        lambda: functional.scaled_dot_product_attention(*given, attn_mask=mask),
        known=[*given, mask],
    )
    assert own == FP32 * (B * 2 * T + B * T), "a sum a query, the mask as numbers"
    learns = meta(B, 2, T, T, learned=True)
    own = kept(
        lambda: functional.scaled_dot_product_attention(*given, attn_mask=learns),
        known=[*given, learns],
    )
    assert own >= FP32 * B * 2 * T * T, "a mask that learns has them kept"


def real(method, case):
    """Return the bytes that autograd keeps of real tensors, parameters aside."""
    backbone = method.backbone
    for parameter in method.learned().values():
        parameter.requires_grad_(True)
    batch = collate(_rows(method, case), torch.arange(case.rows), torch.device("cpu"))
    weights = [*backbone.model.parameters(), *backbone.model.buffers(), *method.parameters()]
    own = {t.untyped_storage().data_ptr() for t in weights}
    found = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        found[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        output = backbone.forward(method.inputs(batch))
    del output
    return sum(size for key, size in found.items() if key not in own)


@pytest.mark.parametrize("kind", ["bert", "gpt2", "t5", "albert", "deberta"])
def test_the_trace_keeps_what_autograd_keeps(tiny, data_dir, kind):
    case = TracedCase(16, 40, torch.float32, autocast=False, checkpointing=False)
    method = PromptTuning(tiny(kind), sst2(data_dir), length=8)
    measured = real(method, case)
    meta_backbone = _like(method.backbone, case)
    with torch.device("meta"):
        other = PromptTuning(meta_backbone, sst2(data_dir), length=8)
    found = _trace(_follow(other, case)).kept
    assert found == pytest.approx(measured, rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("checkpointing", [False, True])
def test_shallow_models_tell_the_deep_one(data_dir, tiny, checkpointing):
    backbone = tiny("t5")
    backbone.config |= {"num_layers": 8, "num_decoder_layers": 6}
    backbone.__dict__.pop("shape", None)
    case = TracedCase(8, 30, torch.float32, autocast=False, checkpointing=checkpointing)

    def made(own):
        with torch.device("meta"):
            return PTuningV2(own, sst2(data_dir), length=5)

    deep = _trace(_deep(made, _like(backbone, case), case))
    whole = _trace(_follow(made(_like(backbone, case)), case))
    assert deep.kept == whole.kept
    assert deep.peak == pytest.approx(whole.peak, rel=0.02)


def test_recomputing_keeps_less_and_autocast_casts_weights_once(data_dir, tiny):
    case = TracedCase(8, 30, torch.float32, autocast=False, checkpointing=False)

    def found(own):
        backbone = _like(tiny("bert"), case)
        with torch.device("meta"):
            method = FineTuning(backbone, sst2(data_dir))
        return _trace(_follow(method, own))

    plain, again = found(case), found(replace(case, checkpointing=True))
    assert again.kept < 0.5 * plain.kept and again.peak < plain.peak
    cast = found(replace(case, autocast=True))
    assert plain.fixed == 0 and cast.kept < plain.kept
    layers, hidden, wide = 3, 32, 48
    assert cast.fixed >= 2 * layers * (4 * hidden * hidden + 2 * hidden * wide)
    assert found(replace(case, autocast=True, checkpointing=True)).fixed == cast.fixed


def test_modes_are_left_after_use():
    with entered([Fused()]):
        pass
    assert meta(2).sum().shape == ()


@pytest.mark.parametrize(("device", "most"), [("cpu", 5.5), ("cuda", 9)])
def test_dropout_is_counted_in_parts_on_a_cpu_and_as_a_whole_on_a_gpu(device, most):
    """The output, a mask of bytes, and the scaled mask: of a part, or of all cells."""
    x, lines = meta(6000, 500, learned=True), torch.empty(6000, dtype=torch.int32, device="meta")
    with dropout.planned_for(device), Live([x, lines]) as live:
        out = dropout.drop_lines(x, lines, 0.1)
    assert live.now == pytest.approx(5 * out.numel(), rel=0.01)
    assert live.peak == pytest.approx(most * out.numel(), rel=0.05)
