"""A step of an optimizer is taken whole or not at all."""

import pytest
import torch

from ptrun.training import optim
from ptrun.training.optim import TorchStepper


def test_memory_that_runs_out_for_moments_leaves_no_half_step(monkeypatch):
    """The parameters of the first group would be updated before the second has its moments."""
    first, second = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
    groups = [{"params": [p], "share": 1.0} for p in (first, second)]
    own = TorchStepper(torch.optim.AdamW(groups), {"first": first, "second": second})
    first.grad = second.grad = torch.ones(2)
    moments = optim._moments

    def scarce(parameter):
        if parameter is second:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return moments(parameter)

    with monkeypatch.context() as patched, pytest.raises(torch.OutOfMemoryError):
        patched.setattr(optim, "_moments", scarce)
        own.step(0.1)
    assert torch.equal(first, torch.ones(2))
    own.step(0.1)
    assert torch.equal(first, second) and not torch.equal(first, torch.ones(2))
