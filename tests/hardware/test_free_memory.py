"""How many members of a population fit in memory."""

from functools import partial
from types import SimpleNamespace

import pytest
import torch

from ptrun.hardware import device as free_memory
from ptrun.method.prompt_tuning import PromptTuning
from tests.small_runs import fitted, member, sst2


@pytest.mark.parametrize(("free", "size"), [(10**9, 4), (2 * 3 * 20 * 100, 3), (10, 1)])
def test_half_of_the_free_memory_holds_the_members(monkeypatch, free, size):
    monkeypatch.setattr(free_memory, "free", lambda device: free)
    members = [SimpleNamespace(learned={"prompt": torch.zeros(10, 10)})] * 8
    assert free_memory.together(members, "cpu", 4) == size


def test_members_beyond_memory_are_trained_after_the_others(tiny, data_dir, monkeypatch, caplog):
    def trained(free):
        monkeypatch.setattr(free_memory, "free", lambda device: free)
        backbone, make = tiny(), partial(PromptTuning, length=3)
        own = [member(make, backbone, sst2(data_dir), seed, max_steps=2) for seed in (1, 2)]
        fitted(own, 1000)
        return own

    whole, cut = trained(10**9), trained(1)
    assert "1 of 2 runs at a time: more do not fit in memory" in caplog.text
    for one, other in zip(whole, cut, strict=True):
        for name, tensor in one.learned.items():
            torch.testing.assert_close(tensor, other.learned[name], atol=1e-5, rtol=0)


def test_without_proc_the_whole_memory_counts(monkeypatch):
    assert free_memory.free("cpu") > 2**26
    monkeypatch.setattr(free_memory.Path, "is_file", lambda path: False)
    assert free_memory.free("cpu") > 2**26


@pytest.mark.parametrize(
    ("built", "visible", "error", "said"),
    [
        (None, None, None, "is built without CUDA; install a build for CUDA, or type hardware=cpu"),
        ("13.0", None, "Found no NVIDIA driver on your system", "this torch cannot use this GPU"),
        ("13.0", "7", "No CUDA GPUs are available", "CUDA_VISIBLE_DEVICES='7' names no GPU"),
        ("13.0", "", "No CUDA GPUs are available", "CUDA_VISIBLE_DEVICES='' names no GPU"),
        ("13.0", None, "odd", "odd"),
        ("13.0", None, None, "torch finds no CUDA device; type nvidia-smi"),
    ],
)
def test_a_missing_gpu_has_a_reason(monkeypatch, built, visible, error, said):
    def init():
        if error:
            raise RuntimeError(error)

    monkeypatch.setattr(torch.version, "cuda", built)
    monkeypatch.setattr(torch.cuda, "init", init)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert said in free_memory.why_no_gpu()
