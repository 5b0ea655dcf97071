"""Learning rates of P-tuning v2 (linear, or by the epoch), of GLM, of PPT (inverse root)."""

import math

import pytest
import torch
from transformers import get_cosine_schedule_with_warmup, get_linear_schedule_with_warmup

from ptrun.config.schema import Schedule, TrainConfig
from ptrun.training.optim import learning_rate, total_steps

PER_EPOCH = 7


def rates(train):
    total = total_steps(train, PER_EPOCH)
    return [learning_rate(train, step, total, PER_EPOCH) for step in range(total + 1)]


WARM = {"max_steps": 40, "warmup": 0.25}
FORMULAS = {
    "exponential": (
        {"epochs": 6, "schedule": Schedule.exponential},
        lambda step: 0.95 ** (step // PER_EPOCH),
    ),
    "linear": ({"epochs": 6, "schedule": Schedule.linear}, lambda step: 1 - step / 42),
    "linear_to_warmup": (  # GLM's AnnealingLR: start x (end - (step - warm-up)) / end
        {"max_steps": 40, "warmup": 0.1, "schedule": Schedule.linear_to_warmup},
        lambda step: (step + 1) / 4 if step < 4 else (40 - (step - 4)) / 40,
    ),
    "cosine, warm": (
        {**WARM, "schedule": Schedule.cosine},
        lambda step: (
            (step + 1) / 10 if step < 10 else (1 + math.cos(math.pi * (step - 10) / 30)) / 2
        ),
    ),
    "inverse_sqrt": (
        {"epochs": 6, "schedule": Schedule.inverse_sqrt},
        lambda step: 1 / (step + 1) ** 0.5,
    ),
    "inverse_sqrt, warm": (
        {**WARM, "schedule": Schedule.inverse_sqrt},
        lambda step: (step + 1) / 10 if step < 10 else (10 / (step + 1)) ** 0.5,
    ),
    "linear, warm": (WARM, lambda step: (step + 1) / 10 if step < 10 else (40 - step) / 30),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_a_rate_is_its_share_of_the_first(name):
    own, share = FORMULAS[name]
    found = rates(TrainConfig(lr=3e-2, **own))
    steps = own.get("max_steps", 6 * PER_EPOCH)
    assert found == pytest.approx([3e-2 * share(step) for step in range(steps + 1)])


@pytest.mark.parametrize(
    ("schedule", "theirs"),
    [
        (Schedule.linear, get_linear_schedule_with_warmup),
        (Schedule.cosine, get_cosine_schedule_with_warmup),
    ],
)
def test_warm_up_from_zero_is_that_of_transformers(schedule, theirs):
    train = TrainConfig(lr=0.1, warmup_from_zero=True, schedule=schedule, **WARM)
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=train.lr)
    scheduler, wanted = theirs(optimizer, 10, 40), []
    for _ in range(41):
        wanted.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    assert rates(train) == pytest.approx(wanted)
