"""Steps are sent before the ones before them are read: told and learned is the same."""

from functools import partial
from types import MethodType

import pytest
import torch

from ptrun.config.schema import Schedule
from ptrun.method.ptuning_v2 import PTuningV2
from ptrun.training.loop import Sent
from ptrun.training.optim import TorchStepper
from tests.small_runs import engine, member, sst2

MAKE = partial(PTuningV2, length=3, reparameterization="mlp", hidden=8)
BAD = 6


def clip(self, limit):
    """Clip the gradients, of which that of the sixth step is not finite."""
    self.calls = getattr(self, "calls", 0) + 1
    if self.calls == BAD:
        next(iter(self.learned.values())).grad.fill_(float("nan"))
    return TorchStepper.clip(self, limit)


def fitted(backbone, data, device, lag, bad=None, steps=12):
    """Train three members, a pass for each row; return them and the order of passes and reads."""
    settings = {"schedule": Schedule.constant, "max_steps": steps, "eval_every": steps}
    own = [member(MAKE, backbone, data, seed, **settings) for seed in (1, 2, 3)]
    if bad is not None:
        own[bad].stepper.clip = MethodType(clip, own[bad].stepper)
    fit, order = engine(backbone, 1, device), []
    fit.lag = fit.lag if lag is None else lag
    passes, read = fit._accumulate, Sent.read
    fit._accumulate = lambda active: (order.append("passes"), passes(active))[1]
    fit.place([one.method for one in own])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sent, "read", lambda self: (order.append(self.before[0]), read(self))[1])
        fit.fit(own)
    return own, order


def steps_of(one):
    return [row for row in one.journal.rows if row["event"] == "step"]


def undone(backbone, data, lag, device="cpu"):
    """Check that a step which is not finite is undone; return the order of passes and reads."""
    own, order = fitted(backbone, data, device, lag, bad=1)
    assert own[1].failed.endswith(f"and gradient norm nan at step {BAD}")
    (failed,) = [row for row in own[1].journal.rows if row["event"] == "failed"]
    assert failed["step"] == BAD
    plain, _ = fitted(backbone, data, device, 0)
    until, _ = fitted(backbone, data, device, 0, steps=BAD - 1)
    for one, other in zip(own, [plain[0], until[1], plain[2]], strict=True):
        (tensors, counts), (others, other_counts) = one.state(), other.state()
        assert all(torch.equal(tensor, others[name]) for name, tensor in tensors.items())
        assert counts["updates"] == other_counts["updates"] and steps_of(one) == steps_of(other)
        assert (one.step, one.tokens) == (other.step, other.tokens)
    return order


@pytest.mark.parametrize("lag", [1, 3])
def test_a_step_that_is_not_finite_is_undone_after_later_ones_were_sent(tiny, data_dir, lag):
    order = undone(tiny(), sst2(data_dir), lag)
    assert order.index(0) == lag + 1  # the first step is read after the passes of `lag` more
