"""T5 with its residual stream divided by 100: the same function, within the range of fp16."""

import re
from dataclasses import replace
from functools import partial

import pytest
import torch

from ptrun.backbone.base import Prefix
from ptrun.backbone.seq2seq import factor, scale_down
from ptrun.config.schema import Schedule
from ptrun.errors import UserError
from ptrun.hardware.torch_engine import TorchEngine
from ptrun.method.adapter import Adapter
from ptrun.method.fine_tuning import FineTuning
from ptrun.method.lora import LoRA
from ptrun.method.prompt_tuning import PromptTuning
from ptrun.method.ptuning_v2 import PTuningV2
from ptrun.training.optim import LossScale, ScaledStepper
from tests.backbone.inputs import text
from tests.readings import reading, reads
from tests.readout.reading import pocket
from tests.small_runs import member, sst2

CLOSE = {"atol": 1e-5, "rtol": 1e-5}


def prompted(backbone):
    """Return an input with soft prompts, all three kinds of prefixes and all four of edits."""
    given, shape = text(backbone), backbone.shape
    width = {"generator": torch.Generator().manual_seed(9)}
    prompt = torch.randn(len(given.mask), given.mask.shape[1], shape.hidden_size, **width)

    def prefixes(layers):
        size = (len(given.mask), shape.heads, 2, shape.head_size)
        made = (torch.randn(2, *size, **width) for _ in range(layers))
        return tuple(Prefix(*pair) for pair in made)

    def add(hidden):
        assert hidden.dtype is torch.float32
        return hidden + 0.1 * hidden.tanh() + 0.05  # no linear map: units matter

    sites = ("layer", "attention", "ffn")
    decoder = replace(
        given.decoder,
        prefixes=prefixes(shape.decoder_layers),
        cross=prefixes(shape.decoder_layers),
        edits={(site, 1): add for site in (*sites, "cross")},
        ids=None,
        embeddings=backbone.embed(given.decoder.ids) * 1.5,
    )
    return replace(
        given,
        ids=None,
        embeddings=backbone.embed(given.ids) + 0.3 * prompt,
        prefixes=prefixes(shape.layers),
        edits={(site, 0): add for site in sites},
        keys=torch.arange(len(given.mask)),
        decoder=decoder,
    )


@pytest.mark.parametrize("given", [text, prompted], ids=["text", "prompted"])
@pytest.mark.parametrize("kind", ["t5", "mt5"])
def test_scaled_is_the_same_function(tiny, kind, given):
    plain, scaled = tiny(kind), tiny(kind)
    scale_down(scaled)
    scale_down(scaled)  # once is enough
    with torch.no_grad():
        one, other = (backbone.forward(given(backbone)) for backbone in (plain, scaled))
    torch.testing.assert_close(one.logits, other.logits, **CLOSE)
    torch.testing.assert_close(one.hidden, other.hidden, **CLOSE)
    ids = text(plain).ids
    torch.testing.assert_close(plain.embed(ids), scaled.embed(ids), **CLOSE)


def test_what_carries_the_stream_is_divided_and_nothing_else(tiny):
    plain, scaled = tiny("t5"), tiny("t5")
    scale_down(scaled)
    states = (dict(b.model.named_parameters()) for b in (plain, scaled))
    divided = {}
    for (name, one), other in zip(next(states).items(), next(states).values(), strict=True):
        ratio = float((one / other).median())
        divided[re.sub(r"\d+", "0", name)] = round(ratio)
        assert ratio == pytest.approx(factor(name), rel=1e-5)
    assert {n: r for n, r in divided.items() if r > 1} == {
        "shared.weight": 100,
        "encoder.block.0.layer.0.SelfAttention.o.weight": 100,
        "encoder.block.0.layer.0.DenseReluDense.wi_0.weight": 10,  # digits are blotted out: wi_1
        "encoder.block.0.layer.0.DenseReluDense.wo.weight": 10,
        "decoder.block.0.layer.0.SelfAttention.o.weight": 100,
        "decoder.block.0.layer.0.EncDecAttention.o.weight": 100,
        "decoder.block.0.layer.0.DenseReluDense.wi_0.weight": 10,
        "decoder.block.0.layer.0.DenseReluDense.wo.weight": 10,
    }
    norms = [m.variance_epsilon for m in scaled.model.modules() if hasattr(m, "variance_epsilon")]
    assert norms and all(eps == pytest.approx(1e-10) for eps in norms)


@pytest.mark.parametrize("tied", [False, True], ids=["own head", "tied head"])
@pytest.mark.parametrize("gate", ["gated-gelu", "relu"])
def test_a_tied_head_and_a_plain_feed_forward_are_the_same_function_too(tiny, tied, gate):
    outputs = []
    for scale in (False, True):
        backbone = tiny("t5")
        if gate == "relu":
            _ungate(backbone.model)
        if tied:
            backbone.model.lm_head.weight = backbone.model.shared.weight
        if scale:
            scale_down(backbone)
        outputs.append(backbone.forward(prompted(backbone)).logits)
    torch.testing.assert_close(*outputs, **CLOSE)


def _ungate(model):
    """Make a T5 v1.0 of a v1.1: one map, a ReLU, `wo`."""
    model.config.is_gated_act = False
    for name, module in list(model.named_modules()):
        if name.endswith("DenseReluDense"):
            module.wi = module.wi_0
            del module.wi_0, module.wi_1
            module.forward = lambda x, m=module: m.wo(m.wi(x).relu())


def test_pocket_t5_learns_the_same_with_the_scaling_on(data_dir):
    losses = []
    for scaling in (False, True):
        backbone = pocket("pocket_t5")
        one = _trained(backbone, data_dir, "fp32", fp16_scaling=scaling)
        losses.append(torch.tensor(one.journal.losses()))
    torch.testing.assert_close(*losses, **CLOSE)


def _trained(backbone, data_dir, precision, make=None, steps=4, train=None, **settings):
    make = make or partial(PromptTuning, length=4)
    task = sst2(data_dir, "{sentence} {mask}")
    one = member(make, backbone, task, max_steps=steps, eval_every=steps, **(train or {}))
    fit = TorchEngine(
        backbone, device="cpu", precision=precision, token_budget=60, checkpointing=False,
        **settings,
    )  # fmt: skip
    fit.place([one.method])
    fit.fit([one])
    return one


METHODS = {
    "prompt_tuning": partial(PromptTuning, length=3),
    "ptuning_v2": partial(PTuningV2, length=3, stacks=["encoder", "decoder", "cross"]),
    "adapter": partial(Adapter, hidden=4),
    "fine_tuning": reads(FineTuning, reading("verbalizer")),
}


@pytest.mark.parametrize("make", METHODS.values(), ids=METHODS)
def test_a_scaled_t5_learns_in_fp16_as_in_fp32(tiny, data_dir, monkeypatch, make):
    """The scale begins where these gradients fit, so that no step is skipped and all compare."""

    class Low(ScaledStepper):
        def __init__(self, *own):
            super().__init__(*own)
            self.loss_scale = LossScale(2.0**6)

    monkeypatch.setattr("ptrun.hardware.torch_engine.ScaledStepper", Low)
    tuned = make is METHODS["fine_tuning"]  # it learns the divided tensors
    train = {"lr": 1e-4} if tuned else None
    losses = [
        torch.tensor(
            _trained(
                tiny("t5"), data_dir, precision, make, train=train, fp16_scaling=scaling
            ).journal.losses()
        )
        for precision, scaling in (("fp32", tuned), ("fp16", True))
    ]
    assert len(losses[1]) == 4  # nothing was skipped
    torch.testing.assert_close(*losses, atol=1e-2, rtol=1e-2)


def test_the_scale_finds_where_gradients_of_a_scaled_t5_fit(tiny, data_dir):
    """They are 100 times as large in the scaled stream: a run starts with skipped steps."""
    one = _trained(tiny("t5"), data_dir, "fp16", steps=20, fp16_scaling=True)
    assert one.failed is None and one.step == 20
    assert 2 <= one.stepper.skipped <= 12 and len(one.journal.losses()) == 20 - one.stepper.skipped


def test_a_large_stream_is_finite_where_fp16_alone_overflows(tiny):
    """The published T5-XXL's hidden states reach tens of thousands; these reach 10^6."""

    def loud(scaled):
        backbone = tiny("t5")
        for name, parameter in backbone.model.named_parameters():
            if "DenseReluDense.w" in name and "wi_0" not in name:
                parameter.mul_(1000.0)
        if scaled:
            scale_down(backbone)
        return backbone

    with torch.no_grad():
        exact = loud(False).forward(text(loud(False))).logits
        halves = []
        for scaled in (False, True):
            backbone = loud(scaled)
            backbone.model.half()
            halves.append(backbone.forward(text(backbone)).logits.float())
    assert halves[1].isfinite().all()
    off = [float((h - exact).norm() / exact.norm()) for h in halves]
    assert off[1] < 0.02 and not off[0] < 1.0, off


def test_fp16_is_refused_for_t5_unless_scaled(tiny):
    common = {"device": "cpu", "token_budget": 9, "checkpointing": False}
    with pytest.raises(UserError, match=r"bf16 or fp32, or add hardware.fp16_scaling=true"):
        TorchEngine(tiny("t5"), precision="fp16", **common)
    with pytest.raises(UserError, match=r"tiny_bert\d* is bert"):
        TorchEngine(tiny("bert"), precision="fp16", fp16_scaling=True, **common)
    assert TorchEngine(tiny("t5"), precision="auto", **common).precision in ("fp32", "bf16")
    fitting = tiny("t5")
    fitting.fits_fp16 = True  # as CPM-2, which was trained in fp16
    assert TorchEngine(fitting, precision="fp16", **common).precision == "fp16"


def test_scaling_is_not_for_methods_that_add_to_the_backbones_maps(tiny, data_dir):
    backbone = tiny("t5")
    fit = TorchEngine(
        backbone, device="cpu", precision="fp16", token_budget=9, checkpointing=False,
        fp16_scaling=True,
    )  # fmt: skip
    with pytest.raises(
        UserError, match=r"fp16_scaling=true: LoRA adds to the backbone's maps.*hardware.precision"
    ):
        fit.place([LoRA(backbone, sst2(data_dir), rank=2)])


LR, DECAY, EPS, CLIP = 1e-3, 0.1, 1e-4, 0.5


def _stepped(tiny, data_dir, **settings):
    """Return a T5 before and after one step of full tuning, its exported tensors, its gradients."""
    backbone = tiny("t5")
    before = {name: p.clone() for name, p in backbone.model.named_parameters()}
    make = reads(FineTuning, reading("verbalizer"))
    optimizer = {"lr": LR, "weight_decay": DECAY, "eps": EPS, "clip": CLIP, "max_steps": 1}
    task = sst2(data_dir, "{sentence} {mask}")
    one = member(make, backbone, task, schedule=Schedule.constant, **optimizer)
    fit = TorchEngine(
        backbone, device="cpu", precision="fp32", token_budget=60, checkpointing=False, **settings
    )
    fit.place([one.method])
    gradients = {}
    one.stepper.clip = lambda limit, real=one.stepper.clip: (
        gradients.update({n: p.grad.clone() for n, p in one.learned.items()}),
        real(limit),
    )[1]
    fit.fit([one])
    return backbone, one, before, gradients


def test_full_tuning_learns_the_divided_tensors_at_the_same_rate(tiny, data_dir):
    """One AdamW step on w = W / f, written for W: the gradient is f g, the step f times as long."""
    plain, scaled = (_stepped(tiny, data_dir, fp16_scaling=on) for on in (False, True))
    _, _, before, gradients = plain
    own = {name: factor(name.removeprefix("backbone.")) * g for name, g in gradients.items()}
    norm = torch.sqrt(sum(g.square().sum() for g in own.values()))
    assert norm > CLIP
    exported = scaled[1].method.exported()
    moved = {}
    for name, gradient in own.items():
        weight = before[name.removeprefix("backbone.")]
        g, f = gradient * CLIP / (norm + 1e-6), factor(name.removeprefix("backbone."))
        decayed = weight * (1 - LR * DECAY * (weight.dim() > 1))
        expected = decayed - f * LR * g / (g.abs() + EPS)
        torch.testing.assert_close(exported[name], expected, atol=2e-4 * f * LR, rtol=1e-5)
        moved[f] = (expected - weight).abs().max().item()
    assert set(moved) == {1.0, 10.0, 100.0} and moved[100.0] > 50 * moved[1.0]
    unscaled = plain[1].method.exported()
    assert (unscaled["backbone.shared.weight"] - before["shared.weight"]).abs().max() < 2 * LR


def test_a_tuned_scaled_t5_is_saved_in_the_unit_of_its_checkpoint(tiny, data_dir):
    backbone, one, *_ = _stepped(tiny, data_dir, fp16_scaling=True)
    tuned = backbone.forward(text(backbone)).logits
    for scaling in (False, True):
        fresh = tiny("t5")
        method = FineTuning(fresh, sst2(data_dir, "{sentence} {mask}"), reading("verbalizer"))
        if scaling:
            scale_down(fresh)
        method.load_exported(one.method.exported())
        torch.testing.assert_close(fresh.forward(text(fresh)).logits, tuned, **CLOSE)
