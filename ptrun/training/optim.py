"""The optimizer and its steps, the learning rate, and loss scaling for fp16."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, get_args

import torch
from torch import Tensor, nn

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
    - `cosine` falls to 0 at `total` as half a cosine, as in transformers (PEFT's comparison);
    - `constant` stays;
    - `exponential` is multiplied by `train.decay` once an epoch (P-tuning v2's tagging runs);
    - `inverse_sqrt` is `lr / sqrt(step + 1)` without warm-up (PPT's pre-training).
    """
    warm = int(train.warmup * total)
    if step < warm:
        return train.lr * (step + (not train.warmup_from_zero)) / warm
    if train.schedule is Schedule.linear:
        return train.lr * (total - step) / max(1, total - warm)
    if train.schedule is Schedule.cosine:
        share = (step - warm) / max(1, total - warm)
        return float(train.lr * (1 + math.cos(math.pi * share)) / 2)
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


def make_optimizer(
    train: TrainConfig,
    learned: Mapping[str, nn.Parameter],
    rates: Mapping[str, float] | None = None,
) -> torch.optim.Adam:
    """Return torch's fused optimizer.

    Weight decay skips vectors, that is biases and norms, unless `train.decay_vectors`. The
    backbone's parameters may have their own rate and decay, and `rates` has those of others, by the
    beginning of their names. A group's `share` is its rate as a multiple of `train.lr`.
    """
    every = {"": train.lr, **(rates or {}), "backbone.": train.backbone_lr or train.lr}
    groups: list[dict[str, Any]] = []
    axes = 0 if train.decay_vectors else 2
    for start, rate in every.items():
        part = [p for n, p in learned.items() if start == max(filter(n.startswith, every), key=len)]
        decay = train.backbone_weight_decay if start == "backbone." else None
        share, decay = rate / train.lr, train.weight_decay if decay is None else decay
        groups += [
            {"params": [p for p in part if p.dim() >= axes], "weight_decay": decay, "share": share},
            {"params": [p for p in part if p.dim() < axes], "weight_decay": 0.0, "share": share},
        ]
    kind = torch.optim.Adam if train.optimizer is Optimizer.adam else torch.optim.AdamW
    filled = [group for group in groups if group["params"]]
    filled = filled or groups[:1]  # torch needs a group, also for a method that learns nothing
    beta1, beta2 = train.betas
    return kind(filled, lr=train.lr, betas=(beta1, beta2), eps=train.eps, fused=True)


_HIGHEST = 1e30  # above 1e38 fp32 overflows
_RULES: Sequence[tuple[str, str, Callable[[Any], bool]]] = (
    ("epochs batch_size max_steps eval_every eval_rows patience", "1 or more", lambda v: v >= 1),
    ("lr eps backbone_lr", f"more than 0, at most {_HIGHEST:g}", lambda v: 0 < v <= _HIGHEST),
    ("clip", "more than 0", lambda v: v > 0),
    ("weight_decay backbone_weight_decay", "0 or more", lambda v: v >= 0),
    ("decay", "more than 0, at most 1", lambda v: 0 < v <= 1),
    ("warmup", "a share of all steps, 0 or more and less than 1", lambda v: 0 <= v < 1),
    (
        "betas",
        "two numbers, 0 or more and less than 1",
        lambda v: len(v) == 2 and all(0 <= beta < 1 for beta in v),
    ),
)


def check_train(train: TrainConfig) -> None:
    """Refuse values of `train` that are out of range: one line for each."""
    optional = {field.name for field in fields(train) if type(None) in get_args(field.type)}
    problems = [
        f"train.{name} is {value}; use {'null, or ' * (name in optional)}{allowed}."
        for names, allowed, valid in _RULES
        for name in names.split()
        if (value := getattr(train, name)) is not None and not valid(value)
    ]
    if problems:
        raise UserError("\n".join(problems))


# Optimizer steps of a member: by torch here, by DeepSpeed in `ptrun.hardware.deepspeed_engine`.

MOMENTS = ("exp_avg", "exp_avg_sq")


class TorchStepper:
    """Turns gradients into steps of a torch optimizer (Adam or AdamW) over named parameters."""

    skips_on_device = True  # so that the host need not wait for a loss

    def __init__(self, optimizer: torch.optim.Adam, learned: Mapping[str, nn.Parameter]):
        self.optimizer, self.learned = optimizer, learned

    @property
    def scale(self) -> float:
        """Factor of a loss before its backward pass."""
        return 1.0

    @property
    def skipped(self) -> int:
        """Number of steps skipped so far."""
        return 0

    def skip(self) -> str | None:
        """Skip a step whose gradients are not finite. Return None, or text for the error."""
        return ""

    def clip(self, limit: float | None) -> Tensor:
        """Clip the gradients to a norm, unless `limit` is None, and return their norm, `[]`."""
        bound = math.inf if limit is None else limit
        return nn.utils.clip_grad_norm_(self.learned.values(), bound)

    def step(self, rate: float, stop: Tensor | None = None) -> None:
        """Take a step at a learning rate, times each group's share, and drop the gradients.

        All moments are there before the first update: memory that runs out leaves no half step.
        A `stop` `[]` of 1 leaves tensors, moments and counts as they are; 0 changes nothing.
        """
        for parameter in self._updated():
            if not self.optimizer.state.get(parameter):
                self.optimizer.state[parameter] = _moments(parameter)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["share"]
        if stop is not None:  # torch's fused kernels read it
            self.optimizer.found_inf = stop  # type: ignore[attr-defined]
        self.optimizer.step()
        self.drop()

    def _updated(self) -> list[Tensor]:
        """Return the tensors that the next step updates; ranks update parts of them."""
        return [p for p in self.learned.values() if p.grad is not None]

    def drop(self) -> None:
        """Drop the gradients."""
        self.optimizer.zero_grad(set_to_none=True)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return the moments by name, and the number of updates of each tensor.

        These numbers differ: a batch of one data set does not update the heads of others.
        """
        states = {name: self.optimizer.state.get(p, {}) for name, p in self.learned.items()}
        tensors = {f"{k}.{n}": s[k] for n, s in states.items() for k in MOMENTS if k in s}
        return tensors, {"updates": counted({n: s["step"] for n, s in states.items() if s})}

    def resume(self, tensors: Mapping[str, Tensor], plain: Mapping[str, Any]) -> None:
        """Restore a state, after the learned parameters; refuse one that is divided over ranks."""
        names = {f"{MOMENTS[0]}.{name}" for name in self.learned}
        if any(key.startswith(f"{MOMENTS[0]}.") and key not in names for key in tensors):
            raise UserError(
                "the saved state is divided over ranks, and a single process cannot resume it; "
                "type hardware=zero1 (or zero1_mp4) again, or rerun=true to start anew."
            )
        for name, parameter in self.learned.items():
            if f"{MOMENTS[0]}.{name}" in tensors:
                updates = plain.get("updates", {}).get(name, plain["step"])
                moments = {k: tensors[f"{k}.{name}"].to(parameter.device) for k in MOMENTS}
                step = torch.tensor(float(updates), device=parameter.device)
                self.optimizer.state[parameter] = {"step": step, **moments}


def _moments(parameter: Tensor) -> dict[str, Tensor]:
    """Return the state with which torch's fused Adam begins."""
    zeros = {key: torch.zeros_like(parameter) for key in MOMENTS}
    return {"step": torch.zeros((), dtype=torch.float32, device=parameter.device), **zeros}


def counted(steps: Mapping[str, Tensor]) -> dict[str, int]:
    """Return numbers of updates by name, read from their device at once."""
    if not steps:
        return {}
    return {n: int(k) for n, k in zip(steps, torch.stack([*steps.values()]).tolist(), strict=True)}


# Dynamic loss scaling for fp16, where small gradients underflow: DeepSpeed's rule, as in PPT.
#
# The loss is multiplied by the scale before the backward pass, and the gradients are divided by it
# before norm, clipping and step. Each member of a population has its own scale, so an overflow
# skips the step of one member only.
#
# `torch.amp.GradScaler` has no hysteresis, and one scale for all losses that share a backward pass.
# DeepSpeed 0.19 doubles the scale one step later than this and the version that PPT used.

START, LEAST = 2.0**16, 1.0
WINDOW = 1000
"""Steps without an overflow after which the scale doubles."""
HYSTERESIS = 2
"""The overflow that first halves the scale. Earlier ones only skip their step."""


@dataclass
class LossScale:
    """The factor of a loss, and the counts that change it.

    Args:
        value: the scale.
        good: steps since the last overflow.
        hysteresis: overflows until the scale is halved.
        skipped: steps that overflowed, in total.
    """

    value: float = START
    good: int = 0
    hysteresis: int = HYSTERESIS
    skipped: int = 0

    def succeed(self) -> None:
        """Count a step without overflow."""
        self.good += 1
        if self.good % WINDOW == 0:
            self.value, self.hysteresis = self.value * 2, HYSTERESIS

    def overflow(self) -> bool:
        """Count an overflow; return False if the scale is already the lowest."""
        if self.hysteresis > 1:
            self.hysteresis -= 1
        elif self.value > LEAST:
            self.value = max(LEAST, self.value / 2)
        else:
            return False
        self.good, self.skipped = 0, self.skipped + 1
        return True


class ScaledStepper(TorchStepper):
    """Steps over gradients of a scaled loss; each overflow changes the next scale."""

    skips_on_device = False

    def __init__(self, optimizer: torch.optim.Adam, learned: Mapping[str, nn.Parameter]):
        super().__init__(optimizer, learned)
        self.loss_scale = LossScale()

    @property
    def scale(self) -> float:
        """Factor of a loss before its backward pass."""
        return self.loss_scale.value

    @property
    def skipped(self) -> int:
        """Number of steps that overflowed."""
        return self.loss_scale.skipped

    def clip(self, limit: float | None) -> Tensor:
        """Undo the scale, then clip; return the norm, which is not finite after an overflow."""
        for parameter in self.learned.values():
            if parameter.grad is not None:
                parameter.grad /= self.scale
        return super().clip(limit)

    def step(self, rate: float, stop: Tensor | None = None) -> None:
        """Take a step and count it."""
        super().step(rate, stop)
        self.loss_scale.succeed()

    def skip(self) -> str | None:
        """Drop the gradients and lower the scale; return an error text if it is the lowest."""
        self.drop()
        if self.loss_scale.overflow():
            return None
        return (
            f" in fp16, with the lowest loss scale, {LEAST:.0f}; type hardware.precision=bf16 or "
            "fp32"
        )

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return the optimizer's state, and the scale's."""
        tensors, plain = super().state()
        return tensors, {**plain, "loss_scale": asdict(self.loss_scale)}

    def resume(self, tensors: Mapping[str, Tensor], plain: Mapping[str, Any]) -> None:
        """Restore both."""
        super().resume(tensors, plain)
        self.loss_scale = LossScale(**plain["loss_scale"])
