"""DeepSpeed: the same training loop on several ranks, which divide rows (ZeRO-1) and the model.

ptrun hardware=zero1        ptrun hardware=zero1_mp4        ptrun hardware=zero1 hardware.ranks=2

The papers used ZeRO-1. In full tuning it divides 12 bytes a parameter. With a frozen backbone it
saves almost nothing: 100 vectors of T5-XXL have 3 MB of moments.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import Parameter

from ptrun.backbone.cuts import Cut
from ptrun.errors import UserError
from ptrun.hardware.precision import resolved
from ptrun.hardware.ranks import Ranks, joined
from ptrun.hardware.torch_engine import TorchEngine
from ptrun.hardware.zero import ZeroStepper
from ptrun.method.base import Method
from ptrun.training.loop import needs_all_rows
from ptrun.training.member import Member


@dataclass
class DeepSpeedEngine(TorchEngine):
    """Trains one run on several ranks.

    Args:
        backbone, precision, token_budget, checkpointing: see `TorchEngine`. With `bf16` a tuned
            backbone has bf16 weights too; its fp32 copies and moments are divided.
        device: `cpu`, `cuda` or `auto`, which is `cuda` if it is available.
        model_parallel: number of ranks that hold one model together.
        ranks: number of ranks to start on this machine without a launcher. Null is one for each
            visible GPU, or `model_parallel` on a CPU.
    """

    counts = ("model_parallel", "ranks", "token_budget", "population")
    model_parallel: int = field(kw_only=True)
    ranks: int | None = field(kw_only=True)

    def __post_init__(self) -> None:
        """Choose precision and device, and check the fields."""
        self.precision = resolved(self.precision, self.device, self.backbone.dtype)
        if self.device == "auto":
            self.device = "cuda" if torch.cuda.is_available() else "cpu"
        if self.precision == "fp16":
            raise UserError(
                "hardware.precision=fp16: loss scaling does not support several ranks; type "
                "hardware.precision=bf16 or fp32, or hardware=gpu."
            )
        if self.model_parallel > 1 and self.quantization != "none":
            raise UserError(
                f"hardware.quantization={self.quantization}: matrices that are divided over "
                f"{self.model_parallel} ranks stay dense; type hardware=gpu or hardware=zero1."
            )
        self.population = 1  # a stepper averages the gradients of one member
        super().__post_init__()

    def connect(self) -> Ranks:
        """Join the other processes of the run."""
        self.world = joined(self.model_parallel, self.device)
        return self.world

    def weight_type(self, *, tuned: bool) -> torch.dtype:
        """Return the precision of the weights; those of a tuned backbone have fp32 copies."""
        return super().weight_type(tuned=False)

    def load(self, *, tuned: bool) -> None:
        """Load this rank's part of the weights."""
        self.backbone.division = self.world.division(self.device)
        super().load(tuned=tuned)

    def place(self, methods: Sequence[Method]) -> None:
        """Move backbone and methods to the device.

        Raises:
            UserError: a method changes maps of a divided model, or the loss needs all rows.
        """
        if self.world.data_parallel > 1 and any(map(needs_all_rows, methods)):
            raise UserError(
                "readout.objective=batch_margin needs all rows of a batch, which are divided over "
                f"{self.world.data_parallel} ranks; type readout.objective=margin or hardware=gpu."
            )
        if self.world.model_parallel > 1 and any(m.changes_maps for m in methods):
            raise UserError(
                f"{type(methods[0]).__name__} changes maps of the backbone, which are divided over "
                f"{self.world.model_parallel} ranks; type hardware=zero1 or hardware=gpu."
            )
        super().place(methods)

    def equip(self, member: Member) -> None:
        """Let DeepSpeed take the member's steps."""
        if not member.learned:
            return
        for parameter in member.learned.values():
            if self._cut_of(parameter).summed:
                parameter.register_hook(self.world.summed)  # type: ignore[no-untyped-call]
        whole = {name: self._cut_of(p).axis is None for name, p in member.learned.items()}
        member.stepper = ZeroStepper(
            member.optimizer,
            member.learned,
            whole,
            self.world,
            self.device,
            divided=member.method.tunes_backbone,
        )

    def whole(self, method: Method) -> dict[str, Tensor]:
        """Return a method's exported tensors, joined from all ranks; empty except on rank 0."""
        learned: dict[str, Parameter] = method.learned()
        whole: dict[str, Tensor] = {}
        for name, part in sorted(method.exported().items()):
            tensor = self._joined(self._cut_of(learned.get(name)), part)
            if tensor is not None:
                whole[name] = tensor
        return whole

    def _joined(self, cut: Cut, own: Tensor) -> Tensor | None:
        """Return the whole tensor on rank 0, and None on the others."""
        if cut.axis is None or self.world.share:
            return cut.joined([own]) if self.world.main else None
        parts = [torch.empty_like(own) for _ in range(self.model_parallel)]
        gathered = parts if self.world.main else None
        dist.gather(own.contiguous(), gathered, group=self.world.tensor, group_dst=0)
        return cut.joined([part.cpu() for part in parts]) if self.world.main else None

    def _cut_of(self, parameter: Parameter | None) -> Cut:
        """Return how a parameter is divided; only the backbone's are."""
        return self.backbone.cuts.get(id(parameter), Cut())
