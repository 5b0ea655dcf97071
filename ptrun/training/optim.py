"""The optimizer and the learning rate as a pure function of the step."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from ptrun.config.schema import Optimizer, Schedule, TrainConfig
from ptrun.errors import UserError


def total_steps(train: TrainConfig, per_epoch: int) -> int:
    """Return how many optimizer steps a run has."""
    return train.max_steps or train.epochs * per_epoch


def learning_rate(train: TrainConfig, step: int, total: int, per_epoch: int) -> float:
    """Return the learning rate of a step, counted from 0.

    After warm-up: `linear` falls to 0 at `total`, `linear_to_warmup` as steeply as if there had
    been no warm-up, so to `train.warmup` of the rate (GLM), `constant` stays, `exponential` is
    multiplied by `train.decay` once an epoch (P-tuning v2's tagging runs), `inverse_sqrt` falls
    with the root of the steps done: without warm-up `lr / sqrt(step + 1)`, PPT's in pre-training.
    """
    warm = int(train.warmup * total)
    if step < warm:
        return train.lr * (step + 1) / warm
    if train.schedule is Schedule.linear:
        return train.lr * (total - step) / max(1, total - warm)
    if train.schedule is Schedule.linear_to_warmup:
        return train.lr * (total - step + warm) / total
    if train.schedule is Schedule.exponential:
        return float(train.lr * train.decay ** (step // per_epoch))
    if train.schedule is Schedule.inverse_sqrt:
        return float(train.lr * (max(1, warm) / (step + 1)) ** 0.5)
    return train.lr


def make_optimizer(train: TrainConfig, learned: Mapping[str, nn.Parameter]) -> torch.optim.Adam:
    """Return the optimizer; decay spares biases and norms, which are vectors.

    The backbone's parameters may have a rate and a decay of their own; a group's `share` is its
    rate as a multiple of `train.lr`.
    """
    rate = train.lr if train.backbone_lr is None else train.backbone_lr
    decay = train.backbone_weight_decay
    shares = {False: (1.0, train.weight_decay), True: (rate / train.lr, decay)}
    groups: list[dict[str, Any]] = []
    for tuned, (share, own) in shares.items():
        part = [p for n, p in learned.items() if n.startswith("backbone.") is tuned]
        weights = train.weight_decay if own is None else own
        groups += [
            {"params": [p for p in part if p.dim() > 1], "weight_decay": weights, "share": share},
            {"params": [p for p in part if p.dim() <= 1], "weight_decay": 0.0, "share": share},
        ]
    kind = torch.optim.Adam if train.optimizer is Optimizer.adam else torch.optim.AdamW
    some = [group for group in groups if group["params"]]
    some = some or groups[:1]  # a method that learns nothing never steps
    first, second = train.betas
    return kind(some, lr=train.lr, betas=(first, second), eps=train.eps)


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
        "backbone_lr": (
            train.backbone_lr is None or train.backbone_lr > 0,
            "null, or more than 0",
        ),
        "backbone_weight_decay": (
            train.backbone_weight_decay is None or train.backbone_weight_decay >= 0,
            "null, or 0 or more",
        ),
        "warmup": (0 <= train.warmup < 1, "a share of all steps, 0 or more and less than 1"),
        "weight_decay": (train.weight_decay >= 0, "0 or more"),
        "betas": (
            len(train.betas) == 2 and all(0 <= beta < 1 for beta in train.betas),
            "two numbers, 0 or more and less than 1",
        ),
        "eps": (train.eps > 0, "more than 0"),
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
