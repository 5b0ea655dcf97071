"""The optimizer and the learning rate as a pure function of the step."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from ptrun.config.schema import Schedule, TrainConfig
from ptrun.errors import UserError


def total_steps(train: TrainConfig, examples: int) -> int:
    """Return how many optimizer steps a run has."""
    return train.max_steps or train.epochs * steps_per_epoch(train, examples)


def steps_per_epoch(train: TrainConfig, examples: int) -> int:
    """Return how many steps see every example once; the last batch may be smaller."""
    return -(-examples // train.batch_size)


def learning_rate(train: TrainConfig, step: int, total: int, per_epoch: int) -> float:
    """Return the learning rate of a step, counted from 0.

    After warm-up: `linear` falls to 0 at `total`, `constant` stays, `exponential` is multiplied
    by `train.decay` once an epoch (P-tuning v2's tagging runs).
    """
    warm = int(train.warmup * total)
    if step < warm:
        return train.lr * (step + 1) / warm
    if train.schedule is Schedule.linear:
        return train.lr * (total - step) / max(1, total - warm)
    if train.schedule is Schedule.exponential:
        return float(train.lr * train.decay ** (step // per_epoch))
    return train.lr


def make_optimizer(train: TrainConfig, parameters: Iterable[nn.Parameter]) -> torch.optim.AdamW:
    """Return AdamW; decay spares biases and norms, which are vectors."""
    learned = list(parameters)
    groups: list[dict[str, Any]] = [
        {"params": [p for p in learned if p.dim() > 1], "weight_decay": train.weight_decay},
        {"params": [p for p in learned if p.dim() <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW([g for g in groups if g["params"]], lr=train.lr)


def check_train(train: TrainConfig) -> None:
    """Refuse values that cannot train, all problems at once.

    Raises:
        UserError: one line a problem.
    """
    rules = {
        "epochs": (train.epochs >= 1, "1 or more"),
        "max_steps": (train.max_steps is None or train.max_steps >= 1, "null, or 1 or more"),
        "batch_size": (train.batch_size >= 1, "1 or more"),
        "lr": (train.lr > 0, "more than 0"),
        "decay": (0 < train.decay <= 1, "more than 0, at most 1"),
        "warmup": (0 <= train.warmup < 1, "a share of all steps, 0 or more and less than 1"),
        "weight_decay": (train.weight_decay >= 0, "0 or more"),
        "clip": (train.clip is None or train.clip > 0, "null, or more than 0"),
        "eval_every": (train.eval_every is None or train.eval_every >= 1, "null, or 1 or more"),
        "patience": (train.patience is None or train.patience >= 1, "null, or 1 or more"),
    }
    found = [
        f"train.{name} is {getattr(train, name)}; use {allowed}."
        for name, (ok, allowed) in rules.items()
        if not ok
    ]
    if found:
        raise UserError("\n".join(found))
