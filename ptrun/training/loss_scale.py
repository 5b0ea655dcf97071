"""Dynamic loss scaling for fp16, where small gradients underflow: DeepSpeed's rule, as in PPT.

The loss is multiplied by the scale before the backward pass, and the gradients are divided by it
before norm, clipping and step. Each member of a population has its own scale, so an overflow skips
the step of one member only.

`torch.amp.GradScaler` has no hysteresis, and one scale for all losses that share a backward pass.
DeepSpeed 0.19 doubles the scale one step later than this and the version that PPT used.
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
    """Steps over gradients of a scaled loss."""

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

    def step(self, rate: float) -> None:
        """Take a step and count it."""
        super().step(rate)
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
