"""DeepSpeed: the same loop on several processes, which share out rows (ZeRO-1) and the model.

ptrun hardware=zero1        ptrun hardware=zero1_mp4        ptrun hardware=zero1 hardware.ranks=2

For a frozen backbone ZeRO-1 saves nothing to speak of (100 vectors of T5-XXL have 3 MB of moments):
it is there for full tuning, where it divides 12 bytes a parameter, and since the papers used it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import Parameter

from ptrun.backbone.cuts import Cut
from ptrun.errors import UserError
from ptrun.hardware.ranks import Ranks, joined
from ptrun.hardware.torch_engine import TorchEngine
from ptrun.hardware.zero import ZeroStepper
from ptrun.method.base import Method
from ptrun.training.member import Member


@dataclass
class DeepSpeedEngine(TorchEngine):
    """Shares out rows and model over the processes that were started.

    Args:
        backbone, precision, token_budget, checkpointing: as of `TorchEngine`; `bf16` also for the
            weights of a tuned backbone, whose fp32 copies and moments are divided.
        device: `cpu`, `cuda` or `auto`, which is `cuda` where there is one.
        model_parallel: processes that hold one model together.
        ranks: processes to start on this machine, where no launcher started any; null: one a
            visible GPU, on a CPU `model_parallel`.
    """

    model_parallel: int = field(kw_only=True)
    ranks: int | None = field(kw_only=True)

    def __post_init__(self) -> None:
        """Choose the device; refuse numbers below 1."""
        if self.device == "auto":
            self.device = "cuda" if torch.cuda.is_available() else "cpu"
        for name in ("model_parallel", "ranks"):
            count = getattr(self, name)
            if count is not None and count < 1:
                raise UserError(f"hardware.{name} is {count}; use 1 or more.")
        if self.precision == "fp16":
            raise UserError(
                "hardware.precision=fp16: losses are scaled on one process alone; type "
                "hardware.precision=bf16 or fp32, or hardware=gpu."
            )
        self.population = 1  # each member's gradients are averaged by themselves
        super().__post_init__()

    def connect(self) -> Ranks:
        """Join the other processes of the run."""
        self.world = joined(self.model_parallel, self.device)
        return self.world

    def weight_type(self, *, tuned: bool) -> torch.dtype:
        """Return the precision of the weights: a tuned backbone has fp32 copies beside them."""
        return super().weight_type(tuned=False)

    def load(self, *, tuned: bool) -> None:
        """Read this process' part of the weights."""
        self.backbone.division = self.world.division(self.device)
        super().load(tuned=tuned)

    def place(self, methods: Sequence[Method]) -> None:
        """Move backbone and methods to the device.

        Raises:
            UserError: a method puts maps of its own into a model that is divided.
        """
        if self.world.model_parallel > 1 and any(m.alone and not m.tunes_backbone for m in methods):
            raise UserError(
                f"{type(methods[0]).__name__} changes maps of the backbone, which are divided over "
                f"{self.world.model_parallel} ranks; type hardware=zero1 or hardware=gpu."
            )
        super().place(methods)

    def equip(self, member: Member) -> None:
        """Let DeepSpeed take a member's steps."""
        if not member.learned:
            return
        for parameter in member.learned.values():
            if self._cut_of(parameter).summed:
                parameter.register_hook(self.world.summed)  # type: ignore[no-untyped-call]
        tuned = member.method.tunes_backbone
        member.stepper = ZeroStepper(
            member.optimizer,
            member.learned,
            {name: self._cut_of(p).axis is None for name, p in member.learned.items()},
            self.world,
            self.device,
            divided=tuned,
        )

    def whole(self, method: Method) -> dict[str, Tensor]:
        """Return what a method exports, put together of all parts; in the first rank alone."""
        learned, exported = method.learned(), method.exported()
        made = {
            name: self._joined(self._cut_of(learned.get(name)), tensor)
            for name, tensor in sorted(exported.items())
        }
        return {name: tensor for name, tensor in made.items() if tensor is not None}

    def _joined(self, cut: Cut, own: Tensor) -> Tensor | None:
        """Return a tensor as a file has it, on the first rank; None on the others."""
        if cut.axis is None or self.world.share:
            return cut.joined([own]) if self.world.main else None
        parts = [torch.empty_like(own) for _ in range(self.model_parallel)]
        gathered = parts if self.world.main else None
        dist.gather(own.contiguous(), gathered, group=self.world.tensor, group_dst=0)
        return cut.joined([part.cpu() for part in parts]) if self.world.main else None

    def _cut_of(self, parameter: Parameter | None) -> Cut:
        """Return how a parameter is divided; one that is not the backbone's is not."""
        return self.backbone.cuts.get(id(parameter), Cut())
