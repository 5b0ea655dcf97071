"""The optimizer and the learning rate as a pure function of the step."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from ptrun.config.schema import Optimizer, Schedule, Select, Ties, TrainConfig
from ptrun.errors import UserError


def total_steps(train: TrainConfig, per_epoch: int) -> int:
    """Return how many optimizer steps a run has."""
    return train.max_steps or train.epochs * per_epoch


def learning_rate(train: TrainConfig, step: int, total: int, per_epoch: int) -> float:
    """Return the learning rate of a step, counted from 0.

    After a linear warm-up, whose first step has the rate 0 with `train.warmup_from_zero`:
    - `linear` falls to 0 at `total`;
    - `linear_to_warmup` falls with the slope of a schedule without warm-up, so to `train.warmup` of
      the rate (GLM);
    - `constant` stays;
    - `exponential` is multiplied by `train.decay` once an epoch (P-tuning v2's tagging runs);
    - `inverse_sqrt` is `lr / sqrt(step + 1)` without warm-up (PPT's pre-training).
    """
    warm = int(train.warmup * total)
    if step < warm:
        return train.lr * (step + (not train.warmup_from_zero)) / warm
    if train.schedule is Schedule.linear:
        return train.lr * (total - step) / max(1, total - warm)
    if train.schedule is Schedule.linear_to_warmup:
        return train.lr * (total - step + warm) / total
    if train.schedule is Schedule.exponential:
        return float(train.lr * train.decay ** (step // per_epoch))
    if train.schedule is Schedule.inverse_sqrt:
        return float(train.lr * (max(1, warm) / (step + 1)) ** 0.5)
    return train.lr


def unused_keys(train: TrainConfig, *, tuned: bool) -> set[str]:
    """Return the keys of `train` that change nothing; `tuned` says whether the backbone is."""
    decays = train.weight_decay or (tuned and train.backbone_weight_decay)
    unused = {
        "epochs": train.max_steps is not None,
        "decay": train.schedule is not Schedule.exponential,
        "warmup_from_zero": not train.warmup,
        "decay_vectors": not decays,
        "backbone_lr": not tuned,
        "backbone_weight_decay": not tuned,
        "ties": train.select is Select.last,
        "patience": train.select is Select.last,
        "compared": train.ties is not Ties.last_in_all or train.select is Select.last,
    }
    return {key for key, is_unused in unused.items() if is_unused}


def make_optimizer(train: TrainConfig, learned: Mapping[str, nn.Parameter]) -> torch.optim.Adam:
    """Return torch's fused optimizer.

    Weight decay skips vectors, that is biases and norms, unless `train.decay_vectors`. The
    backbone's parameters may have their own rate and decay. A group's `share` is its rate as a
    multiple of `train.lr`.
    """
    rate, decay = train.backbone_lr, train.backbone_weight_decay
    share = 1.0 if rate is None else rate / train.lr
    parts = {
        False: (1.0, train.weight_decay),
        True: (share, train.weight_decay if decay is None else decay),
    }
    groups: list[dict[str, Any]] = []
    axes = 0 if train.decay_vectors else 2
    for tuned, (share, decay) in parts.items():
        part = [p for n, p in learned.items() if n.startswith("backbone.") is tuned]
        groups += [
            {"params": [p for p in part if p.dim() >= axes], "weight_decay": decay, "share": share},
            {"params": [p for p in part if p.dim() < axes], "weight_decay": 0.0, "share": share},
        ]
    kind = torch.optim.Adam if train.optimizer is Optimizer.adam else torch.optim.AdamW
    filled = [group for group in groups if group["params"]]
    filled = filled or groups[:1]  # torch needs a group, also for a method that learns nothing
    first, second = train.betas
    return kind(filled, lr=train.lr, betas=(first, second), eps=train.eps, fused=True)


_HIGHEST = 1e30  # above 1e38 fp32 overflows
_RULES: Sequence[tuple[str, str, Callable[[Any], bool]]] = (
    ("epochs batch_size", "1 or more", lambda v: v >= 1),
    ("max_steps eval_every patience", "null, or 1 or more", lambda v: v is None or v >= 1),
    ("lr eps", f"more than 0, at most {_HIGHEST:g}", lambda v: 0 < v <= _HIGHEST),
    (
        "backbone_lr",
        f"null, or more than 0, at most {_HIGHEST:g}",
        lambda v: v is None or 0 < v <= _HIGHEST,
    ),
    ("clip", "null, or more than 0", lambda v: v is None or v > 0),
    ("weight_decay", "0 or more", lambda v: v >= 0),
    ("backbone_weight_decay", "null, or 0 or more", lambda v: v is None or v >= 0),
    ("decay", "more than 0, at most 1", lambda v: 0 < v <= 1),
    ("warmup", "a share of all steps, 0 or more and less than 1", lambda v: 0 <= v < 1),
    (
        "betas",
        "two numbers, 0 or more and less than 1",
        lambda v: len(v) == 2 and all(0 <= beta < 1 for beta in v),
    ),
)


def check_train(train: TrainConfig) -> None:
    """Check the values of `train`, and report all problems at once.

    Raises:
        UserError: one line for each value out of range.
    """
    problems = [
        f"train.{name} is {getattr(train, name)}; use {allowed}."
        for names, allowed, valid in _RULES
        for name in names.split()
        if not valid(getattr(train, name))
    ]
    if problems:
        raise UserError("\n".join(problems))
