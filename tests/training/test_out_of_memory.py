"""A step that does not fit is done again in halves, once, and changes no number but by rounding."""

import logging
from functools import partial

import pytest
import torch

from ptrun.errors import MemoryRanOut, UserError
from ptrun.method.ptuning_v2 import PTuningV2
from tests.small_runs import Memory, conll03, engine, fitted, member

MAKE = partial(PTuningV2, length=3)
BUDGET = 30
DEVICE = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
HOST = RuntimeError("[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't ...")
HOST = RuntimeError(str(HOST).replace("...", "allocate memory: you tried to allocate 9 bytes."))


def members(backbone, data_dir, seeds=(1, 2), journals=(None, None)):
    data = conll03(data_dir)
    return [
        member(MAKE, backbone, data, seed, journal=journal, max_steps=8, eval_every=4)
        for seed, journal in zip(seeds, journals, strict=True)
    ]


class Scarce:
    """A device with room for so many tokens in training (or not), from a pass of it on."""

    def __init__(self, backbone, room, start=0, error=DEVICE, training=True):
        self.run, self.room, self.left, self.error = backbone.forward, room, start, error
        self.training = training
        backbone.forward = self.forward

    def forward(self, given):
        output = self.run(given)  # as a rule memory ends in the midst of a pass
        counts = torch.is_grad_enabled() is self.training
        self.left -= counts
        if counts and self.left < 0 and given.mask.numel() > self.room:
            raise self.error
        return output


def placed(own):
    fit = engine(own[0].method.backbone, BUDGET)
    fit.place([one.method for one in own])
    return fit


def same(own, others, tolerance):
    for one, other in zip(own, others, strict=True):
        assert one.step == other.step == 8 and one.failed is None
        losses = (torch.tensor(m.journal.losses()) for m in (one, other))
        torch.testing.assert_close(*losses, **tolerance)
        for name, tensor in one.learned.items():
            torch.testing.assert_close(tensor, other.learned[name], **tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("error", [DEVICE, HOST], ids=["device", "host"])
def test_a_step_done_again_in_halves_is_that_of_a_run_with_the_smaller_budget(
    tiny, data_dir, caplog, error
):
    """Dropout is on, and the step fails after some of its passes have left gradients."""
    backbone = tiny()
    own = members(backbone, data_dir)
    Scarce(backbone, room=20, start=4, error=error)
    with caplog.at_level(logging.WARNING):
        fit = fitted(own, BUDGET)
    (line,) = [r.getMessage() for r in caplog.records if "out of memory" in r.getMessage()]
    assert f"{fit.token_budget} tokens at most, not 30" in line and fit.token_budget <= 20
    step = int(line.split("step ")[1].split(":")[0])
    assert step > 1
    reference = members(tiny(), data_dir)
    plain = placed(reference)
    accumulate = plain._accumulate

    def smaller(active):
        if active[0].step == step - 1:
            plain.token_budget = fit.token_budget
        return accumulate(active)

    plain._accumulate = smaller
    plain.fit(reference)
    same(own, reference, {"atol": 0, "rtol": 0})
    whole = members(tiny(), data_dir)
    fitted(whole, BUDGET)
    same(own, whole, {"atol": 1e-5, "rtol": 0})


@pytest.mark.slow
@pytest.mark.parametrize("lag", [0, 1])
def test_a_second_end_of_memory_says_what_to_type_and_the_run_goes_on_bit_equal(
    tiny, data_dir, lag
):
    backbone, journals = tiny(), (Memory(), Memory())
    own = members(backbone, data_dir, journals=journals)
    scarce = Scarce(backbone, room=20, start=4)
    fit = placed(own)
    fit.lag, accumulate = lag, fit._accumulate

    def scarcer(active):
        scarce.room = 0 if active[0].step == 5 else 20
        return accumulate(active)

    fit._accumulate = scarcer
    with pytest.raises(UserError, match="out of memory at step 6") as caught:
        fit.fit(own)
    for part in ("hardware.checkpointing=true", "hardware.token_budget=", "hardware.population=1"):
        assert part in str(caught.value)
    assert all(p.grad is None for one in own for p in one.learned.values())
    assert [one.journal.saved[1]["step"] for one in own] == [5, 5]
    backbone = tiny()
    again = members(backbone, data_dir, journals=[Memory(j.saved) for j in journals])
    Scarce(backbone, room=20)
    assert fitted(again, BUDGET).token_budget == fit.token_budget  # saved, so as before
    backbone = tiny()
    whole = members(backbone, data_dir)
    Scarce(backbone, room=20, start=4)
    fitted(whole, BUDGET)
    for one, other in zip(again, whole, strict=True):
        assert one.journal.losses() == other.journal.losses()[5:]
        assert all(torch.equal(p, other.learned[name]) for name, p in one.learned.items())


def test_another_error_is_not_taken_for_an_end_of_memory(tiny, data_dir):
    backbone = tiny()
    own = members(backbone, data_dir)
    Scarce(backbone, room=0, error=RuntimeError("shapes do not fit"))
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        fitted(own, BUDGET)


def test_an_evaluation_that_does_not_fit_is_done_again_in_halves(tiny, data_dir, caplog):
    backbone = tiny()
    own = members(backbone, data_dir)
    Scarce(backbone, room=20, start=1, training=False)
    fit = fitted(own, BUDGET)
    (line,) = [r.getMessage() for r in caplog.records if "out of memory" in r.getMessage()]
    assert line.startswith("out of memory in an evaluation") and fit.token_budget <= 20
    whole = members(tiny(), data_dir)
    fitted(whole, BUDGET)
    for one, other in zip(own, whole, strict=True):
        assert [row["step"] for row in one.history] == [row["step"] for row in other.history]
    same(own, whole, {"atol": 1e-5, "rtol": 0})


@pytest.mark.slow
def test_an_evaluation_that_never_fits_keeps_the_last_save(tiny, data_dir):
    """The step before it is not saved: the same command must evaluate it."""
    backbone, journal = tiny(), Memory()
    own = members(backbone, data_dir, seeds=(1,), journals=(journal,))
    scarce = Scarce(backbone, room=10**9, training=False)
    fit = placed(own)
    judge = own[0].judge

    def judged(*given):
        scarce.room = 0  # the next evaluation does not fit
        return judge(*given)

    own[0].judge = judged
    with pytest.raises(MemoryRanOut, match="in an evaluation, with micro-batches of"):
        fit.fit(own)
    assert journal.saved[1]["step"] == 4 and own[0].step == 8
    again = members(tiny(), data_dir, seeds=(1,), journals=(Memory(journal.saved),))
    fitted(again, BUDGET)
    assert [row["step"] for row in again[0].history] == [4, 8]


@pytest.mark.parametrize("lag", [0, 1])
def test_moments_that_do_not_fit_are_told_and_the_step_is_taken_later(
    tiny, data_dir, monkeypatch, lag
):
    journals = (Memory(), Memory())
    own = members(tiny(), data_dir, journals=journals)
    step = torch.optim.AdamW.step

    def full(self, *given, **more):
        if self is own[1].optimizer:
            raise DEVICE
        return step(self, *given, **more)

    monkeypatch.setattr(torch.optim.AdamW, "step", full)
    fit = placed(own)
    fit.lag = lag
    with pytest.raises(MemoryRanOut, match=r"at step 1, in the optimizer: the moments of [\d,]+ "):
        fit.fit(own)
    assert [journal.saved[1]["step"] for journal in journals] == [1, 0]
    monkeypatch.undo()
    again = members(tiny(), data_dir, journals=[Memory(j.saved) for j in journals])
    fitted(again, BUDGET)
    whole = members(tiny(), data_dir)
    fitted(whole, BUDGET)
    for one, other in zip(again, whole, strict=True):
        for name, tensor in one.learned.items():
            torch.testing.assert_close(tensor, other.learned[name], atol=1e-5, rtol=0)
