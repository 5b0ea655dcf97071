"""Precision and devices: bf16 stays close to fp32, learned tensors stay fp32."""

from functools import partial

import pytest
import torch

from ptrun.errors import UserError
from ptrun.hardware import device as device_of
from ptrun.hardware.torch_engine import TorchEngine
from ptrun.method.fine_tuning import FineTuning
from ptrun.method.prompt_tuning import PromptTuning
from ptrun.method.ptuning_v2 import PTuningV2
from tests.small_runs import conll03, member

METHODS = {
    "fine_tuning": FineTuning,
    "prompt_tuning": partial(PromptTuning, length=3),
    "ptuning_v2": partial(PTuningV2, length=3),
}


def losses(backbone, data, make, **settings):
    one = member(make, backbone, data, lr=1e-3)
    settings = {"precision": "fp32", "checkpointing": False} | settings
    fit = TorchEngine(backbone, device="cpu", token_budget=60, **settings)
    fit.place([one.method])
    fit.fit([one])
    assert all(p.dtype is torch.float32 for p in one.learned.values())
    return torch.tensor(one.journal.losses())


@pytest.mark.slow
@pytest.mark.parametrize("make", METHODS.values(), ids=METHODS)
def test_bf16_losses_are_within_two_hundredths_of_fp32(tiny, data_dir, make):
    data = conll03(data_dir)
    full = losses(tiny(), data, make)
    half = losses(tiny(), data, make, precision="bf16")
    torch.testing.assert_close(half, full, atol=2e-2, rtol=2e-2)
    assert not torch.equal(half, full)


def test_an_absent_device_is_named(tiny):
    if torch.cuda.is_available():
        pytest.skip("GPU: this machine has one")
    with pytest.raises(UserError, match=r"hardware.device=cuda"):
        TorchEngine(tiny(), device="cuda", precision="fp32", token_budget=9, checkpointing=False)


AUTO = ["auto cpu bf16 fp32", "auto cpu fp32 fp32", "auto cuda bf16 bf16", "auto cuda fp32 fp32"]
AUTO += ["auto auto bf16 bf16", "fp32 cuda bf16 fp32", "fp16 cpu bf16 fp16"]


@pytest.mark.parametrize("line", AUTO)
def test_auto_depends_on_the_configuration_alone(monkeypatch, line):
    *requested, expected = line.split()
    for here in (True, False):
        monkeypatch.setattr(device_of, "has_bf16", lambda device, here=here: here)
        assert device_of.resolved(*requested) == expected


def test_an_engine_on_the_cpu_computes_in_fp32_whatever_the_processor_has(tiny, monkeypatch):
    capabilities = {"avx512_bf16": True}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)
    backbone = tiny()
    backbone.dtype = "bf16"
    settings = {"precision": "auto", "token_budget": 9, "checkpointing": False}
    made = TorchEngine(backbone, device="cpu", **settings)
    assert made.precision == "fp32"
    assert device_of.faster(made.precision, made.device, backbone.dtype) == "bf16"
    assert device_of.faster("bf16", "cpu", "bf16") is None
    assert device_of.faster("fp32", "cpu", "fp32") is None


def test_a_gpu_without_bf16_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: False)
    with pytest.raises(UserError, match=r"this GPU does not compute; type hardware.precision=fp32"):
        device_of.check_bf16("bf16", "cuda")
    device_of.check_bf16("fp32", "cuda")
    device_of.check_bf16("bf16", "cpu")
