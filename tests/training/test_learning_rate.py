"""Learning rates of P-tuning v2 (linear, or by the epoch), of GLM, of PPT (inverse root)."""

import pytest
import torch
from torch.optim import lr_scheduler
from transformers import get_linear_schedule_with_warmup

from ptrun.config.schema import Schedule, TrainConfig
from ptrun.training.optim import learning_rate, total_steps

PER_EPOCH = 7


def rates(train):
    total = total_steps(train, PER_EPOCH)
    return [learning_rate(train, step, total, PER_EPOCH) for step in range(total + 1)]


def theirs(train, make):
    """Return what a scheduler of torch gives, stepped when the papers' code steps it."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=train.lr)
    scheduler = make(optimizer)
    for step in range(total_steps(train, PER_EPOCH) + 1):
        yield optimizer.param_groups[0]["lr"]
        optimizer.step()
        if train.schedule is Schedule.linear or (step + 1) % PER_EPOCH == 0:
            scheduler.step()


def test_exponential_is_095_to_the_number_of_epochs_done():
    train = TrainConfig(epochs=6, lr=3e-2, schedule=Schedule.exponential)
    found = rates(train)
    assert found == pytest.approx([3e-2 * 0.95 ** (step // 7) for step in range(43)])
    wanted = theirs(train, lambda o: lr_scheduler.ExponentialLR(o, 0.95))
    assert found == pytest.approx(list(wanted))


def test_linear_ends_at_zero():
    train = TrainConfig(epochs=6, lr=5e-3, schedule=Schedule.linear)
    found = rates(train)
    assert found[0] == 5e-3 and found[-1] == 0 and found[-2] == pytest.approx(5e-3 / 42)
    wanted = theirs(train, lambda o: lr_scheduler.LambdaLR(o, lambda step: max(0, 1 - step / 42)))
    assert found == pytest.approx(list(wanted))


def test_warm_up_from_zero_is_that_of_transformers():
    train = TrainConfig(max_steps=40, lr=0.1, warmup=0.25, warmup_from_zero=True)
    found = rates(train)
    assert found[:3] == pytest.approx([0, 0.01, 0.02]) and found[10] == 0.1
    wanted = theirs(train, lambda o: get_linear_schedule_with_warmup(o, 10, 40))
    assert found == pytest.approx(list(wanted))
    ahead = rates(TrainConfig(max_steps=40, lr=0.1, warmup=0.25))
    assert ahead[:9] == pytest.approx(found[1:10]) and ahead[10:] == found[10:]


def test_linear_to_warmup_ends_at_warm_ups_share():
    """GLM's AnnealingLR: start x (end - (step - warm-up)) / end."""
    train = TrainConfig(max_steps=40, lr=5e-6, warmup=0.1, schedule=Schedule.linear_to_warmup)
    found = rates(train)
    assert found[3] == found[4] == 5e-6 and found[-1] == pytest.approx(5e-7)
    assert found[4:] == pytest.approx([5e-6 * (40 - (step - 4)) / 40 for step in range(4, 41)])


def test_inverse_sqrt_is_the_rate_over_the_root_of_the_steps():
    train = TrainConfig(epochs=6, lr=0.1, schedule=Schedule.inverse_sqrt)
    found = rates(train)
    assert found == pytest.approx([0.1 / (step + 1) ** 0.5 for step in range(43)])
    assert found[0] == 0.1 and found[3] == pytest.approx(0.05) and found[24] == pytest.approx(0.02)


def test_inverse_sqrt_falls_from_where_warm_up_ends():
    train = TrainConfig(max_steps=40, lr=0.1, warmup=0.25, schedule=Schedule.inverse_sqrt)
    found = rates(train)
    assert found[:10] == pytest.approx([0.01 * step for step in range(1, 11)])
    assert found[10:] == pytest.approx([0.1 * (10 / step) ** 0.5 for step in range(11, 42)])
