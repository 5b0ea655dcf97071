"""The parts of an engine option that decide memory: device, precision and division."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch

from ptrun.hardware.torch_engine import has_bf16

BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}


@dataclass(frozen=True)
class Layout:
    """One option of `hardware`.

    Args:
        option: its name.
        device: `cpu` or `cuda`.
        precision: the precision of a frozen backbone's weights and of computation.
        token_budget: the most padded tokens in a micro-batch.
        checkpointing: whether activations are recomputed.
        zero: whether data-parallel ranks divide the optimizer state (ZeRO-1).
        model_parallel: the number of ranks that divide the matrices of the layers.
        ranks: processes on one machine.
    """

    option: str
    device: Literal["cpu", "cuda"]
    precision: str
    token_budget: int
    checkpointing: bool
    zero: bool = False
    model_parallel: int = 1
    ranks: int = 1

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
        return f"{self.option} ({self.device}, {self.precision}{shared})"


def layout_of(option: str, node: Mapping[str, Any], dtype: str, *, asked: bool) -> Layout:
    """Return the layout of an option's configuration.

    Args:
        option: its name.
        node: its keys; keys of some engines may be missing.
        dtype: the backbone's default precision.
        asked: whether the plan is for a requested device; `device: auto` is then CUDA.
    """
    count = torch.cuda.device_count()
    device, precision = node["device"], node["precision"]
    if device == "auto":
        device = "cuda" if asked or count else "cpu"
    if precision == "auto":  # another machine's CUDA device is assumed to have bf16
        has = has_bf16(device) if device == "cpu" or count else True
        precision = "bf16" if dtype == "bf16" and has else "fp32"
    parallel, zero = node.get("model_parallel") or 1, "model_parallel" in node
    visible = count if zero and device == "cuda" else 0
    return Layout(
        option=option,
        device=device,
        precision=precision,
        token_budget=node["token_budget"],
        checkpointing=node["checkpointing"],
        zero=zero,
        model_parallel=parallel,
        ranks=node.get("ranks") or max(visible, parallel),
    )
