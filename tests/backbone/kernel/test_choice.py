"""The kernel is chosen where it works, and attention is plain where it does not."""

import logging

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from ptrun.backbone import kernel, launch
from tests.backbone.kernel.comparing import DEVICE
from tests.tiers import package


def query(width=8, dtype=torch.float32):
    return torch.zeros(1, 2, 3, width, dtype=dtype)


@pytest.fixture(autouse=True)
def unknown():
    launch.agrees.cache_clear()
    yield
    launch.agrees.cache_clear()


def test_a_cpu_takes_the_plain_path_and_no_triton_is_needed(monkeypatch):
    monkeypatch.setattr(launch, "find_spec", lambda _: pytest.fail("triton was looked for"))
    assert not kernel.suits(query(), query(), None, None)


@pytest.mark.parametrize(
    ("width", "dtype", "value", "mask", "bias", "suits"),
    [
        (8, torch.float32, 8, None, None, True),
        (256, torch.bfloat16, 256, None, None, True),
        (257, torch.bfloat16, 257, None, None, False),
        (8, torch.float64, 8, None, None, False),
        (8, torch.float32, 16, None, None, False),
        (8, torch.float32, 8, torch.ones(1, 1, 1, 3, dtype=torch.bool), None, True),
        (8, torch.float32, 8, torch.ones(1, 1, 1, 3), None, False),
        (8, torch.float32, 8, torch.ones(1, 2, 3, 3, dtype=torch.bool), None, False),
        (8, torch.float32, 8, None, torch.zeros(1, 2, 3, 3), True),
        (8, torch.float32, 8, None, torch.zeros(1, 2, 3, 3, requires_grad=True), False),
    ],
)
def test_what_the_kernel_computes(width, dtype, value, mask, bias, suits):
    with launch.use(True):
        assert kernel.suits(query(width, dtype), query(value, dtype), mask, bias) is suits
    with launch.use(False):
        assert not kernel.suits(query(width, dtype), query(value, dtype), mask, bias)


def test_without_triton_attention_is_plain(monkeypatch, caplog):
    monkeypatch.setattr(launch, "find_spec", lambda _: None)
    with caplog.at_level(logging.INFO, "ptrun"):
        assert not launch.agrees("attention", kernel.error, torch.device("cpu"), torch.float32, 8)
    assert "triton is not installed" in caplog.text


@pytest.mark.parametrize(
    ("far", "message"),
    [
        (2.0, "is wrong on cpu: 2"),
        (float("nan"), "is wrong on cpu: nan"),
        (None, "no tensor cores"),
    ],
)
def test_a_kernel_that_fails_or_is_wrong_is_not_used(monkeypatch, caplog, far, message):
    package("triton")
    from ptrun.backbone import kernel

    def error(*_):
        if far is None:
            raise RuntimeError("no tensor cores")
        return far

    monkeypatch.setattr(kernel, "error", error)
    assert not launch.agrees("attention", kernel.error, torch.device("cpu"), torch.float32, 8)
    assert message in caplog.text and "plain attention is used" in caplog.text


def test_the_first_use_may_be_inside_a_layer_that_is_recomputed(monkeypatch):
    """Checkpointing compares the tensors that both passes save; only one has those of the probe."""
    package("triton")
    from ptrun.backbone import kernel

    def error(device, *_):
        x = torch.ones(2, device=device, requires_grad=True)
        torch.autograd.grad(x.exp().sin().sum(), x)
        return 0.5

    monkeypatch.setattr(kernel, "error", error)

    def layer(x):
        assert launch.agrees("attention", kernel.error, torch.device(DEVICE), torch.float32, 8)
        return x.exp().sin()

    x = torch.ones(2, requires_grad=True)
    checkpoint(layer, x, use_reentrant=False).sum().backward()
    assert x.grad.all()
