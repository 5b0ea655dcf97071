"""Who takes a member's optimizer steps: torch here, DeepSpeed in `ptrun.hardware.zero`."""

import math
from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn

_MOMENTS = ("exp_avg", "exp_avg_sq")


class Stepper(Protocol):
    """Turns gradients that stand into a step, and keeps what the next one depends on."""

    @property
    def scale(self) -> float:
        """What a loss is multiplied with before its backward."""

    @property
    def skipped(self) -> int:
        """How many steps so far were skipped."""

    def clip(self, limit: float | None) -> float:
        """Clip the gradients by their own norm, unless `limit` is None, and return that norm."""

    def step(self, rate: float) -> None:
        """Take a step at a learning rate, times each group's share, and drop the gradients."""

    def skip(self) -> str | None:
        """Go on without the step whose gradients are not finite; or return what makes it fatal."""

    def drop(self) -> None:
        """Drop the gradients."""

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return the optimizer's state: tensors, and plain data."""

    def resume(self, tensors: Mapping[str, Tensor], plain: Mapping[str, Any]) -> None:
        """Go on from a state, the learned parameters already in place."""


class TorchStepper:
    """Steps of a torch optimizer (Adam or AdamW) over named parameters."""

    def __init__(self, optimizer: torch.optim.Adam, learned: Mapping[str, nn.Parameter]):
        self.optimizer, self.learned = optimizer, learned

    @property
    def scale(self) -> float:
        """What a loss is multiplied with before its backward: nothing."""
        return 1.0

    @property
    def skipped(self) -> int:
        """How many steps so far were skipped: none."""
        return 0

    def clip(self, limit: float | None) -> float:
        """Clip the gradients by their own norm, unless `limit` is None, and return that norm."""
        bound = math.inf if limit is None else limit
        return float(nn.utils.clip_grad_norm_(self.learned.values(), bound))

    def step(self, rate: float) -> None:
        """Take a step at a learning rate, times each group's share, and drop the gradients."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["share"]
        self.optimizer.step()
        self.drop()

    def skip(self) -> str | None:
        """Fail: unless losses are scaled, numbers that are not finite stay so."""
        return ""

    def drop(self) -> None:
        """Drop the gradients."""
        self.optimizer.zero_grad(set_to_none=True)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return the moments by name, and how often each tensor was updated.

        That differs: a batch of one data set leaves other heads.
        """
        states = {name: self.optimizer.state.get(p, {}) for name, p in self.learned.items()}
        tensors = {f"{k}.{n}": s[k] for n, s in states.items() for k in _MOMENTS if k in s}
        updates = {name: int(s["step"]) for name, s in states.items() if "step" in s}
        return tensors, {"updates": updates}

    def resume(self, tensors: Mapping[str, Tensor], plain: Mapping[str, Any]) -> None:
        """Go on from a state, the learned parameters already in place."""
        for name, parameter in self.learned.items():
            if f"{_MOMENTS[0]}.{name}" in tensors:
                updates = plain.get("updates", {}).get(name, plain["step"])
                moments = {k: tensors[f"{k}.{name}"].to(parameter.device) for k in _MOMENTS}
                step = torch.tensor(float(updates))
                self.optimizer.state[parameter] = {"step": step, **moments}
