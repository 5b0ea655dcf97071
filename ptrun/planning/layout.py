"""The parts of an engine option that decide memory: device, precision and division."""

from dataclasses import dataclass
from typing import Literal

import torch

from ptrun.backbone.quantization.formats import Quantization
from ptrun.config.schema import HardwareConfig, Precision
from ptrun.hardware.precision import resolved

BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}


@dataclass(frozen=True)
class Layout:
    """One option of `hardware`.

    Args:
        option: its name.
        device: `cpu` or `cuda`.
        precision: the precision of a frozen backbone's weights and of computation.
        token_budget: the most computed tokens in a micro-batch.
        checkpointing: whether activations are recomputed.
        zero: whether data-parallel ranks divide the optimizer state (ZeRO-1).
        model_parallel: the number of ranks that divide the matrices of the layers.
        ranks: processes on one machine.
        quantization: how the linear maps of a frozen backbone are held.
    """

    option: str
    device: Literal["cpu", "cuda"]
    precision: str
    token_budget: int
    checkpointing: bool
    zero: bool = False
    model_parallel: int = 1
    ranks: int = 1
    quantization: Quantization = "none"

    @property
    def data_parallel(self) -> int:
        """The number of copies of the backbone that share a batch."""
        return max(1, self.ranks // self.model_parallel)

    @property
    def width(self) -> int:
        """Bytes per number of a frozen backbone."""
        return BYTES[self.precision]

    @property
    def title(self) -> str:
        """The title in a table."""
        shared = f", {self.model_parallel} x {self.data_parallel} ranks" if self.ranks > 1 else ""
        held = "" if self.quantization == "none" else f", {self.quantization}"
        return f"{self.option} ({self.device}, {self.precision}{held}{shared})"


def layout_of(option: str, config: HardwareConfig, dtype: Precision, *, elsewhere: bool) -> Layout:
    """Return the layout of an option's configuration.

    Args:
        option: its name.
        config: device, precision and processes that are requested.
        dtype: the backbone's default precision.
        elsewhere: plan for a device that is not here; `device: auto` is then `cuda`.
    """
    visible = torch.cuda.device_count()
    device = config.device
    if device == "auto":
        device = "cuda" if elsewhere or visible else "cpu"
    parallel = config.model_parallel or 1
    gpus = visible if config.divides and device == "cuda" else 0
    return Layout(
        option=option,
        device="cuda" if device == "cuda" else "cpu",
        precision=resolved(config.precision, config.device, dtype),
        token_budget=config.token_budget,
        checkpointing=config.checkpointing,
        zero=config.divides,
        model_parallel=parallel,
        ranks=config.ranks or max(gpus, parallel),
        quantization=config.quantization,  # type: ignore[arg-type]
    )
