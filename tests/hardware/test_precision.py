import pytest
import torch

from ptrun.errors import UserError
from ptrun.hardware import device as precision
from ptrun.hardware.torch_engine import TorchEngine


@pytest.mark.parametrize(
    ("requested", "device", "dtype", "expected"),
    [
        ("auto", "cpu", "bf16", "fp32"),
        ("auto", "cpu", "fp32", "fp32"),
        ("auto", "cuda", "bf16", "bf16"),
        ("auto", "cuda", "fp32", "fp32"),
        ("auto", "auto", "bf16", "bf16"),
        ("fp32", "cuda", "bf16", "fp32"),
        ("fp16", "cpu", "bf16", "fp16"),
    ],
)
def test_auto_depends_on_the_configuration_alone(monkeypatch, requested, device, dtype, expected):
    for here in (True, False):
        monkeypatch.setattr(precision, "has_bf16", lambda device, here=here: here)
        assert precision.resolved(requested, device, dtype) == expected


def test_an_engine_on_the_cpu_computes_in_fp32_whatever_the_processor_has(tiny, monkeypatch):
    capabilities = {"avx512_bf16": True}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)
    backbone = tiny()
    backbone.dtype = "bf16"
    made = TorchEngine(
        backbone, device="cpu", precision="auto", token_budget=9, checkpointing=False
    )
    assert made.precision == "fp32"
    assert precision.faster(made.precision, made.device, backbone.dtype) == "bf16"
    assert precision.faster("bf16", "cpu", "bf16") is None
    assert precision.faster("fp32", "cpu", "fp32") is None


def test_a_gpu_without_bf16_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: False)
    with pytest.raises(UserError, match=r"this GPU does not compute; type hardware.precision=fp32"):
        precision.check_bf16("bf16", "cuda")
    precision.check_bf16("fp32", "cuda")
    precision.check_bf16("bf16", "cpu")
