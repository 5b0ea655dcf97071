"""Plain torch: one training loop for one or many members over one backbone.

ptrun hardware=cpu        ptrun hardware=gpu hardware.precision=fp32
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from ptrun.config.schema import Quantization
from ptrun.errors import MemoryRanOut, UserError
from ptrun.hardware.device import check_bf16, forget, free, resolved, together, why_no_gpu
from ptrun.hardware.environment import imported
from ptrun.hardware.ranks import ALONE, Ranks
from ptrun.method.base import Method
from ptrun.training.loop import HALVES, Loop
from ptrun.training.member import Member
from ptrun.training.optim import ScaledStepper
from ptrun.training.out_of_memory import is_out_of_memory


@dataclass
class TorchEngine(Loop):
    """Trains members that share forward passes, on one device.

    Args:
        backbone: shared by all members.
        device: `cpu` or `cuda`.
        precision: `bf16` runs a frozen backbone in bf16, a tuned one under autocast; learned
            tensors and the head stay fp32. `fp16` has loss scaling. `auto` is fp32 on the CPU and
            the backbone's own `dtype` on a GPU.
        token_budget: most tokens in a micro-batch, with padding where a family computes it;
            bounds memory.
        checkpointing: recompute activations in the backward pass; less memory, more time.
        population: most members that are trained together.
        quantization: hold the linear maps of a frozen backbone in 8 or 4 bits: `int8` or `nf4`.
        fp16_scaling: divide the residual stream of a T5 by 100, as in PPT: the same function up to
            rounding, without overflow in fp16. A tuned backbone learns the divided tensors.
    """

    counts: ClassVar[Sequence[str]] = ("token_budget", "population")
    population: int = field(kw_only=True, default=32)
    quantization: Quantization = field(kw_only=True, default="none")
    fp16_scaling: bool = field(kw_only=True, default=False)
    replays: ClassVar[bool] = True
    """Whether passes over packed tokens are replayed on a GPU."""
    world: Ranks = field(default=ALONE, init=False)

    def __post_init__(self) -> None:
        """Check the fields, and choose the precision."""
        if self.device not in ("cpu", "cuda", "meta"):
            raise UserError(f"hardware.device={self.device}: expected cpu or cuda.")
        if self.device == "cuda" and not torch.cuda.is_available():
            raise UserError(f"hardware.device=cuda, but {why_no_gpu()}")
        for name in self.counts:
            count = getattr(self, name)
            if count is not None and count < 1:
                raise UserError(f"hardware.{name} is {count}; use 1 or more.")
        self.precision = resolved(self.precision, self.device, self.backbone.dtype)
        self._check_fp16()
        check_bf16(self.precision, self.device)
        if self.precision == "fp32":  # by default cuDNN multiplies in TF32
            torch.backends.cudnn.allow_tf32 = False
        if self.quantization != "none":
            self._check_quantization()
            self.backbone.quantize(self.quantization)
        if self.device == "cuda" and self.replays:
            from ptrun.training.graphs import Graphs

            packed = self.backbone.architecture.packed is not None
            kind = self.backbone.config["model_type"]
            self.graphs = Graphs(reason=None if packed else f"{kind} models read padded rows")
        super().__post_init__()

    def _check_fp16(self) -> None:
        """Check that a T5 in fp16 is scaled unless it fits as it is, and that nothing else is."""
        backbone, overflows = self.backbone, self.backbone.architecture.overflows
        if self.fp16_scaling and not overflows:
            raise UserError(
                f"hardware.fp16_scaling=true: it supports T5 models, but {backbone.name} is "
                f"{backbone.config['model_type']}; leave it out."
            )
        exceeds = overflows and not (backbone.fits_fp16 or self.fp16_scaling)
        if self.precision == "fp16" and exceeds:
            raise UserError(
                f"hardware.precision=fp16: {backbone.name} is a T5, whose hidden states overflow "
                "in fp16;\ntype hardware.precision=bf16 or fp32, or add "
                "hardware.fp16_scaling=true, which divides them by 100."
            )

    def _check_quantization(self) -> None:
        """Check that the package is installed, and that no other option needs dense weights."""
        from ptrun.backbone.quantization import check_installed

        check_installed(self.quantization)
        if self.backbone.tuned:
            raise UserError(
                f"hardware.quantization={self.quantization}: start=run: gives this run a backbone "
                "that was tuned, whose weights stay dense; type hardware.quantization=none."
            )
        if self.fp16_scaling:
            raise UserError(
                f"hardware.quantization={self.quantization}: hardware.fp16_scaling=true divides "
                "dense weights; leave one of the two out, or type hardware.precision=bf16."
            )

    def connect(self) -> Ranks:
        """Join the other processes of the run, if there are any."""
        return self.world

    def load(self, *, tuned: bool) -> None:
        """Load the backbone in the precision of `weight_type`; refuse to quantize a tuned one."""
        if tuned and self.quantization != "none":
            raise UserError(
                f"hardware.quantization={self.quantization}: this run tunes the backbone, which "
                "must be frozen; type hardware.quantization=none, or another method, such as "
                "method=lora."
            )
        if self.device == "cuda":
            forget()
        with self._holding(self.weight_type(tuned=tuned)):
            self.backbone.load(self.weight_type(tuned=tuned), self.device)
        imported()

    def whole(self, method: Method) -> dict[str, Tensor]:
        """Return a method's exported tensors, on the rank that writes them."""
        return method.exported()

    def equip(self, member: Member) -> None:
        """Choose the member's stepper."""
        if self.precision == "fp16":
            member.stepper = ScaledStepper(member.optimizer, member.learned)

    def together(self, members: Sequence[Member]) -> tuple[int, int]:
        """Return how many members fit in memory at a time, and the most that are allowed."""
        return together(members, self.device, self.population), self.population

    def place(self, methods: Sequence[Method]) -> None:
        """Move the backbone, in its precision, and the methods to the device.

        Several members that tune or change one backbone are refused, and additions to scaled maps.
        """
        alone = [method for method in methods if method.alone]
        if alone and len(methods) > 1:
            name, verb = type(alone[0]).__name__, "tunes" if alone[0].tunes_backbone else "changes"
            raise UserError(
                f"{name} {verb} the backbone, so its runs cannot share one: got {len(methods)} "
                "runs; do them one by one."
            )
        tuned = any(method.tunes_backbone for method in methods)
        if "peft" in sys.modules:
            from ptrun.method.peft import detach

            detach(self.backbone.model)
        if self.fp16_scaling:
            if added := next((m for m in methods if m.changes_maps), None):
                raise UserError(
                    f"hardware.fp16_scaling=true: {type(added).__name__} adds to the backbone's "
                    "maps, which would be scaled; leave it out and type hardware.precision=bf16 "
                    "or fp32."
                )
            from ptrun.backbone.seq2seq import scale_down

            scale_down(self.backbone)
        with self._holding(self.weight_type(tuned=tuned)):
            self.backbone.model.to(self.device, self.weight_type(tuned=tuned))
        self.backbone.kept.clear()
        self.backbone.checkpoint(self.checkpointing)
        for method in methods:
            method.to(self.device)
            method.placed()

    @contextmanager
    def _holding(self, dtype: torch.dtype) -> Iterator[None]:
        """Say how much memory the weights need if the device has too little."""
        try:
            yield
        except (RuntimeError, MemoryError) as error:
            if isinstance(error, RuntimeError) and not is_out_of_memory(error):
                raise
            count, unused = self.backbone.size(), free(self.device)
            raise MemoryRanOut(
                f"backbone={self.backbone.name}: out of memory for its weights: {count:,} "
                f"parameters need {count * dtype.itemsize / 2**30:.1f} GiB in {self.precision}, "
                f"and {unused / 2**30:.1f} GiB are free on {self.device}.\n`ptrun plan` with the "
                "same options shows what fits, such as hardware.quantization=int8 or nf4."
            ) from None

    def weight_type(self, *, tuned: bool) -> torch.dtype:
        """Return the precision of the backbone's weights; a tuned one keeps fp32."""
        return torch.float32 if tuned else HALVES.get(self.precision, torch.float32)
