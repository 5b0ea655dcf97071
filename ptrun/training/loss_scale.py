"""Dynamic loss scaling, without which small gradients are zero in fp16: DeepSpeed's, as in PPT.

The loss is multiplied before the backward, and gradients divided before norm, clip and step. Each
member of a population has a scale of its own, so one that overflows skips its step alone.

`torch.amp.GradScaler` has no hysteresis, and one scale for all that share a backward. DeepSpeed
0.19 doubles one step later than the version that PPT used and this do.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ptrun.training.stepper import TorchStepper

START, LEAST = 2.0**16, 1.0
WINDOW = 1000
"""Steps without an overflow after which the scale doubles."""
HYSTERESIS = 2
"""The overflow that first halves it; those before it only skip their step."""


@dataclass
class LossScale:
    """What a loss is multiplied with, and what decides when that changes.

    Args:
        value: the scale.
        good: steps since the last overflow.
        hysteresis: overflows from here to a halving, the halving one included.
        skipped: steps that overflowed, in all.
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
        """Count an overflow; return False if the scale would have to go below its least."""
        if self.hysteresis > 1:
            self.hysteresis -= 1
        elif self.value > LEAST:
            self.value = max(LEAST, self.value / 2)
        else:
            return False
        self.good, self.skipped = 0, self.skipped + 1
        return True


class ScaledStepper(TorchStepper):
    """Steps over gradients of a scaled loss."""

    def __init__(self, optimizer: torch.optim.Adam, learned: Mapping[str, nn.Parameter]):
        super().__init__(optimizer, learned)
        self.loss_scale = LossScale()

    @property
    def scale(self) -> float:
        """What the loss is multiplied with."""
        return self.loss_scale.value

    @property
    def skipped(self) -> int:
        """How many steps overflowed."""
        return self.loss_scale.skipped

    def clip(self, limit: float | None) -> float:
        """Undo the scale, then clip; return the norm, which is not finite after an overflow."""
        for parameter in self.learned.values():
            if parameter.grad is not None:
                parameter.grad /= self.scale
        return super().clip(limit)

    def step(self, rate: float) -> None:
        """Take a step, and count it."""
        super().step(rate)
        self.loss_scale.succeed()

    def skip(self) -> str | None:
        """Drop an overflow's gradients and lower the scale; return why not, if it is lowest."""
        self.drop()
        if self.loss_scale.overflow():
            return None
        return (
            f" in fp16, with the loss scale down to {LEAST:.0f}; type hardware.precision=bf16 or "
            "fp32"
        )

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return the optimizer's state, and the scale's."""
        tensors, plain = super().state()
        return tensors, {**plain, "loss_scale": asdict(self.loss_scale)}

    def resume(self, tensors: Mapping[str, Tensor], plain: Mapping[str, Any]) -> None:
        """Go on from a state."""
        super().resume(tensors, plain)
        self.loss_scale = LossScale(**plain["loss_scale"])
