"""Losses scaled for fp16: DeepSpeed's rule, members alone, and a resume that is exact."""

import random
from contextlib import suppress
from functools import partial

import pytest
import torch

from ptrun.hardware.torch_engine import TorchEngine
from ptrun.method.fine_tuning import FineTuning
from ptrun.method.prompt_tuning import PromptTuning
from ptrun.method.ptuning_v2 import PTuningV2
from ptrun.training.optim import LossScale, ScaledStepper, learning_rate
from tests.small_runs import Memory, conll03, member, sst2

MAKE = partial(PTuningV2, length=3)


def fp16(backbone, budget=60, **settings):
    settings = {"precision": "fp16", "checkpointing": False} | settings
    return TorchEngine(backbone, device="cpu", token_budget=budget, **settings)


def fitted(backbone, own, **settings):
    fit = fp16(backbone, **settings)
    fit.place([one.method for one in own])
    fit.fit(own)
    return own


def test_below_a_scale_of_one_it_is_no_use():
    scale = LossScale()
    assert [scale.overflow() for _ in range(18)] == [True] * 17 + [False] and scale.value == 1.0


def test_it_is_deepspeeds_rule_over_any_sequence():
    """Written as there in PPT's time, from the last overflow; 0.19 doubles one step later."""
    ours, draw = LossScale(), random.Random(3)
    value, left, last = 2.0**16, 2, -1
    for step in range(12_000):
        bad = draw.random() < (0.0004 if step < 9_000 else 0.002)
        ours.overflow() if bad else ours.succeed()
        if bad and left == 1:
            value = max(value / 2, 1.0)
        elif bad:
            left -= 1
        elif (step - last) % 1000 == 0:
            value, left = value * 2, 2
        last = step if bad else last
        assert (ours.value, ours.hysteresis) == (value, left), step
    assert ours.skipped > 5


@pytest.mark.slow
@pytest.mark.parametrize(
    "make", [MAKE, partial(PromptTuning, length=3), FineTuning], ids=["v2", "pt", "ft"]
)
@pytest.mark.parametrize("checkpointing", [False, True], ids=["plain", "checkpointed"])
def test_fp16_losses_are_within_a_hundredth_of_fp32(tiny, data_dir, make, checkpointing):
    losses = []
    for precision in ("fp32", "fp16"):
        backbone = tiny()
        one = member(make, backbone, conll03(data_dir), lr=1e-3, max_steps=6)
        fitted(backbone, [one], precision=precision, checkpointing=checkpointing)
        assert all(p.dtype is torch.float32 for p in one.learned.values())
        losses.append(torch.tensor(one.journal.losses()))
    half = torch.float32 if make is FineTuning else torch.float16
    assert next(backbone.model.parameters()).dtype is half
    torch.testing.assert_close(*losses, atol=1e-2, rtol=1e-2)
    assert not torch.equal(*losses)


def test_gradients_are_unscaled_before_the_norm_and_the_clip(tiny, data_dir):
    backbone = tiny()
    one = member(MAKE, backbone, sst2(data_dir))
    fit = fp16(backbone)
    fit.place([one.method])
    found = []
    for scale in (1.0, 2.0**10):
        one.stepper = ScaledStepper(one.optimizer, one.learned)
        one.stepper.loss_scale.value = scale
        fit._accumulate([one])
        norm = float(one.stepper.clip(0.01))
        found.append((norm, torch.cat([p.grad.flatten() for p in one.learned.values()])))
        one.stepper.drop()
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-2)
    for _, clipped in found:
        assert float(clipped.norm()) == pytest.approx(0.01, rel=1e-4)


class Overflows(ScaledStepper):
    """Sees gradients that are not finite at some of the calls to `clip`."""

    at: tuple[int, ...] = ()
    calls = 0

    def clip(self, limit):
        self.calls += 1
        if self.calls in self.at:
            next(iter(self.learned.values())).grad.fill_(float("inf"))
        return super().clip(limit)


def overflowing(monkeypatch, **calls):
    """Let the engine give members, in order, steppers that overflow at these calls."""
    waiting = [tuple(at) for at in calls.values()]

    def stepper(optimizer, learned):
        made = Overflows(optimizer, learned)
        made.at = waiting.pop(0)
        return made

    monkeypatch.setattr("ptrun.hardware.torch_engine.ScaledStepper", stepper)


def test_an_overflow_skips_that_members_step_alone(tiny, data_dir, monkeypatch):
    data = sst2(data_dir)

    def run(**calls):
        overflowing(monkeypatch, **calls)
        backbone = tiny()
        return fitted(
            backbone, [member(MAKE, backbone, data, seed, max_steps=6) for seed in (1, 2)]
        )

    (first, second), (plain, other) = run(a=[2, 3], b=[]), run(a=[], b=[])
    events = [row["event"] for row in first.journal.rows if row["event"] != "dev"]
    assert events == ["step", "skipped", "skipped", "step", "step", "step"]
    assert first.step == plain.step == 6 and first.failed is None
    assert (first.stepper.scale, first.stepper.skipped) == (2.0**15, 2)
    assert second.journal.losses() == other.journal.losses()
    assert second.stepper.scale == 2.0**16
    rates = [row["lr"] for row in first.journal.rows if row["event"] == "step"]
    expected = [learning_rate(first.train, step, 6, first.per_epoch) for step in range(4)]
    assert rates == expected  # the schedule waits while the run goes on


def test_the_scale_is_resumed_exactly(tiny, data_dir, monkeypatch):
    data = sst2(data_dir)

    class Cut(Memory):
        def draft(self, tensors, meta):
            super().draft(tensors, meta)()
            if meta["step"] == 4:
                raise KeyboardInterrupt
            return lambda: None

    def run(at, journal):
        overflowing(monkeypatch, a=at)
        backbone = tiny()
        own = member(MAKE, backbone, data, journal=journal, max_steps=8, eval_every=1)
        with suppress(KeyboardInterrupt):
            fitted(backbone, [own])
        return own

    def rates(one):
        return {r["step"]: r.get("lr") for r in one.journal.rows if r["event"] != "dev"}

    whole, cut = run([2, 4, 5], Memory()), run([2, 4], Cut())
    assert cut.journal.saved[1]["loss_scale"] == {
        "value": 2.0**15, "good": 0, "hysteresis": 1, "skipped": 2
    }  # fmt: skip
    again = run([1], Memory(cut.journal.saved))
    assert again.stepper.loss_scale == whole.stepper.loss_scale
    assert again.journal.losses() == whole.journal.losses()[-3:]
    assert {s: r for s, r in rates(whole).items() if s > 4} == rates(again)
    assert all(torch.equal(p, again.learned[name]) for name, p in whole.learned.items())


def test_a_member_that_overflows_at_the_lowest_scale_fails_by_name(tiny, data_dir, monkeypatch):
    overflowing(monkeypatch, a=range(1, 99), b=[])
    backbone, data = tiny(), sst2(data_dir)
    lost, fine = fitted(
        backbone, [member(MAKE, backbone, data, seed, max_steps=20) for seed in (1, 2)]
    )
    assert "step 18 in fp16" in lost.failed and "hardware.precision=bf16" in lost.failed
    assert fine.failed is None and fine.step == 20
