"""The kernel gives what the plain path gives: output, gradients, and the bits of dropout."""

from itertools import product

import pytest
import torch

from ptrun.backbone import dropout, kernel
from ptrun.backbone.base import Prefix
from ptrun.backbone.dropout import Keyed
from ptrun.backbone.kernel import Terms, attention
from tests.backbone.kernel.comparing import (
    DEVICE,
    SITE,
    TOLERANCE,
    assert_close,
    both,
    exact_products,
    vectors,
)
from tests.tiers import package, tiered

package("triton")

ROWS, T, S, GENERATOR = 2, 19, 21, 11
MASKS = {"none": None, "keys": (ROWS, 1, 1, S), "queries": (ROWS, 1, T, S), "shared": (1, 1, T, S)}
WHOLE, HALF = torch.float32, torch.bfloat16
CORE = [(WHOLE, "queries", 1, 0.1, True), (WHOLE, "none", 0, 0.0, False)]
CASES = [
    (WHOLE, mask, length, (0.0, 0.1)[number % 2], number % 4 < 2)
    for number, (mask, length) in enumerate(product(MASKS, (0, 1, 100)))
]
CASES += [(HALF, *own[1:]) for own in CASES[::3]]


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    """Use the smallest tiles, so that short inputs have several, and bf16 products."""
    monkeypatch.setattr(kernel, "tiles_of", lambda *_, **__: (16, 16, 4, 1))
    exact_products(monkeypatch)


def mask_of(shape):
    """Return a random mask; each query sees the first key."""
    if shape is None:
        return None
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(GENERATOR)) > 0.4
    mask[..., 0] = True
    return mask.to(DEVICE)


def bias_of(heads, dtype):
    """Return relative positions `[1, heads, T, S]` with the strides of T5's."""
    made = torch.randn(T, S, heads, generator=torch.Generator().manual_seed(GENERATOR))
    return made.to(DEVICE, dtype).permute(2, 0, 1)[None]


@pytest.mark.parametrize(
    ("dtype", "mask", "length", "p", "biased"),
    tiered([*CORE, *(own for own in CASES if own not in CORE)], lambda *own: own in CORE),
)
def test_output_and_gradients_are_those_of_the_plain_path(dtype, mask, length, p, biased):
    lengths = (T, S, S, length, length) if length else (T, S, S)
    given = vectors((4, 2, 2, 2, 2), lengths, 12, dtype)  # grouped queries, an uneven head size
    seen = torch.arange(length, device=DEVICE).expand(ROWS, length) % 3 != 1 if length else None
    bias = bias_of(4, dtype) if biased else None
    found, wanted = both(given, dtype, mask=mask_of(MASKS[mask]), seen=seen, bias=bias, p=p)
    assert_close(found, wanted, TOLERANCE[dtype])


@pytest.mark.slow
@pytest.mark.parametrize("width", [1, 100, 256])
@pytest.mark.parametrize("length", [1, 33])
def test_any_head_size_and_length_suit(width, length):
    given = vectors((2, 2, 2, 2, 2), (length, length + 3, length + 3, 2, 2), width, torch.float32)
    assert_close(*both(given, torch.float32, p=0.1), TOLERANCE[torch.float32])


@pytest.mark.slow
def test_fp16_and_the_tiles_of_a_gpu_give_the_same(monkeypatch):
    monkeypatch.undo()
    given = vectors((2, 2, 2, 2, 2), (70, 70, 70, 5, 5), 12, torch.float16)
    assert_close(*both(given, torch.float16, p=0.1), TOLERANCE[torch.float16])


@pytest.mark.parametrize("start", [0, 3])
def test_the_bits_of_dropout_are_those_of_the_plain_path(start):
    """Equal weights over values that name their keys show which weights are kept."""
    length, wide, p, tokens = 5, 32, 0.4, 18
    keys, ones = dropout.row_keys(1, 2, range(ROWS)).to(DEVICE), torch.eye(wide, device=DEVICE)
    flat = torch.zeros(ROWS, 2, wide - length, wide, device=DEVICE)
    named = ones.expand(ROWS, 2, wide, wide)
    prefix = Prefix(named[:, :, :length] * 0, named[:, :, :length])
    terms = Terms(1.0, dropout=Keyed(keys, SITE, p, start=start))
    out = attention(flat[:, :, :tokens], flat, named[:, :, length:], prefix, terms)
    weights = torch.ones(ROWS, 2, tokens, wide, device=DEVICE)
    kept = dropout.drop(weights, keys, SITE, p, origin=length, start=start) != 0
    assert torch.equal(out.transpose(1, 2) != 0, kept)
    assert 0.3 < 1 - kept.float().mean() < 0.5


def test_a_query_that_sees_no_key_gives_zeros_and_moves_nothing():
    given = vectors((2, 2, 2), (3, 3, 3), 16, torch.float32)
    mask = torch.ones(ROWS, 1, 3, 3, dtype=torch.bool, device=DEVICE)
    mask[0, :, 1] = False
    out = attention(*given, None, Terms(1.0, mask))
    grads = torch.autograd.grad(out.square().sum(), given)
    assert not out[0, 1].any() and out[0, 0].all()
    assert not grads[0][0, :, 1].any() and all(bool(own.isfinite().all()) for own in grads)


def test_only_gradients_that_are_needed_are_computed(monkeypatch):
    started = []
    run = kernel.Launch._run
    monkeypatch.setattr(
        kernel.Launch, "_run", lambda self, name, *rest, **more: started.append(name)
        or run(self, name, *rest, **more)
    )  # fmt: skip
    query, key, value, before, old = vectors((1,) * 5, (3, 3, 3, 2, 2), 16, torch.float32, rows=1)
    prefix = Prefix(before, old)
    attention(query.detach(), key.detach(), value.detach(), prefix, Terms(1.0)).sum().backward()
    assert started == ["forward", "deltas", "keys"]
    assert before.grad is not None and old.grad is not None


def test_autocast_decides_the_type():
    """Rotary positions leave queries and keys in fp32 beside values in bf16."""
    query, key, value = vectors((2, 2, 2), (3, 3, 3), 16, torch.float32, rows=1)
    with torch.autocast(DEVICE, torch.bfloat16):
        out = attention(query, key, value.bfloat16(), None, Terms(0.25))
    grads = torch.autograd.grad(out.float().sum(), [query, key, value])
    assert out.dtype is torch.bfloat16 and all(own.dtype is torch.float32 for own in grads)
    wanted = (query @ key.transpose(2, 3) * 0.25).softmax(dim=-1) @ value
    assert_close([out], [wanted.transpose(1, 2)], TOLERANCE[torch.bfloat16])
