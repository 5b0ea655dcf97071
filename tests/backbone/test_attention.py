"""Every family of models gives the same with the attention kernel as without it."""

from dataclasses import replace

import pytest
import torch

from ptrun.backbone import kernel
from ptrun.backbone import launch as choice
from tests.backbone.inputs import KINDS, passed, placed, text
from tests.backbone.kernel.comparing import DEVICE, assert_close, exact_products
from tests.families import PaperBackbone
from tests.tiers import package, tiered

package("triton")

PLAIN = ("deberta", "deberta-v2")
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2}


@pytest.fixture
def counted(monkeypatch):
    """Return the list of forward passes of the kernel."""
    exact_products(monkeypatch)
    passes, whole = [], kernel.Launch.forward
    monkeypatch.setattr(kernel.Launch, "forward", lambda own: passes.append(own) or whole(own))
    return passes


def loaded(folder, kind, dtype=torch.float32):
    backbone = PaperBackbone(name=kind, path=str(folder(kind)))
    backbone.load(dtype, DEVICE)
    backbone.model.to(DEVICE)
    return backbone


def compared(backbone, tolerance, **options):
    with choice.use(False):
        wanted = passed(backbone, **options)
    with choice.use(True):
        found = passed(backbone, **options)
    assert_close([own.float() for own in found], [own.float() for own in wanted], tolerance)


CELLS = [*((kind, True) for kind in KINDS), ("bert", False)]


@pytest.mark.parametrize(("kind", "keyed"), tiered(CELLS, lambda kind, _: kind in ("gpt2", *PLAIN)))
def test_a_family_gives_the_same_with_the_kernel(tiny_folder, counted, kind, keyed):
    backbone = loaded(tiny_folder, kind)
    compared(backbone, TOLERANCE[torch.float32], keyed=keyed)
    layers = backbone.shape.layers + 2 * backbone.shape.decoder_layers
    assert len(counted) == (0 if kind in PLAIN else layers)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bert", "llama", "t5"])
def test_a_family_in_bf16_stays_near_its_fp32(tiny_folder, counted, kind):
    """Rounding moves both paths; the kernel's error is not above twice that of the plain path."""
    whole = loaded(tiny_folder, kind)
    with choice.use(False):
        exact = passed(whole, keyed=True)
    backbone = loaded(tiny_folder, kind, torch.bfloat16)
    with choice.use(False):
        plain = far(passed(backbone, keyed=True), exact)
    with choice.use(True):
        fused = far(passed(backbone, keyed=True), exact)
    assert counted
    assert all(
        own <= 2 * other + TOLERANCE[torch.bfloat16]
        for own, other in zip(fused, plain, strict=True)
    )


def far(found, wanted):
    """Return the error of each tensor, as a share of its norm."""
    pairs = zip(found, wanted, strict=True)
    return [float((a.float() - b.float()).norm() / b.float().norm()) for a, b in pairs]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bert", "t5"])
def test_recomputed_activations_give_the_same(tiny_folder, counted, kind):
    backbone = loaded(tiny_folder, kind)
    backbone.checkpoint(True)
    compared(backbone, TOLERANCE[torch.float32], keyed=True)
    layers = backbone.shape.layers + 2 * backbone.shape.decoder_layers
    assert len(counted) == 2 * layers


def test_a_learned_bias_keeps_the_plain_path(tiny_folder, counted):
    backbone = loaded(tiny_folder, "t5")
    encoder = backbone.model.encoder.block[0].layer[0].SelfAttention.relative_attention_bias
    encoder.weight.requires_grad_(True)
    with choice.use(True):
        given = replace(placed(text(backbone)), decoder=None, logits_at=None)
        hidden = backbone.forward(replace(given, keys=torch.arange(3, device=DEVICE))).hidden
        hidden.square().sum().backward()
    assert not counted and encoder.weight.grad.any()
