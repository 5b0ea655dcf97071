"""Optimizer steps of a member: by torch here, by DeepSpeed in `ptrun.hardware.zero`."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ptrun.errors import UserError

MOMENTS = ("exp_avg", "exp_avg_sq")


class TorchStepper:
    """Turns gradients into steps of a torch optimizer (Adam or AdamW) over named parameters."""

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

    def step(self, rate: float) -> None:
        """Take a step at a learning rate, times each group's share, and drop the gradients.

        All moments are there before the first update: memory that runs out leaves no half step.
        """
        for parameter in self._updated():
            if not self.optimizer.state.get(parameter):
                self.optimizer.state[parameter] = _moments(parameter)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["share"]
        self.optimizer.step()
        self.drop()

    def _updated(self) -> list[Tensor]:
        """Return the tensors that the next step updates."""
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
        """Restore a state; the learned parameters are already restored.

        Raises:
            UserError: ranks saved it, each its own part of a tuned backbone.
        """
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
