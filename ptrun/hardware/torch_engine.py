"""Plain torch: one loop for one or many members over one backbone.

ptrun hardware=cpu        ptrun hardware=gpu hardware.precision=fp32
"""

import logging
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ptrun.backbone.low_rank import detach
from ptrun.errors import UserError
from ptrun.hardware.fp16 import check_fp16, scale_frozen
from ptrun.hardware.ranks import ALONE, Ranks
from ptrun.method.base import Method
from ptrun.training.loss_scale import ScaledStepper
from ptrun.training.member import Member
from ptrun.training.out_of_memory import Guard
from ptrun.training.passes import HALVES, Item, Passes, by_owner
from ptrun.training.progress import meter

_LOG = logging.getLogger(__name__)


@dataclass
class Speed:
    """What training took: seconds, and real (not padded) tokens seen."""

    seconds: float = 0.0
    tokens: int = 0
    steps: int = 0

    def per_second(self) -> float:
        """Return real tokens a second."""
        return self.tokens / self.seconds if self.seconds else 0.0


@dataclass
class TorchEngine(Passes):
    """Knows device and precision, and takes the steps of members that share passes.

    Args:
        backbone: loaded, shared by all members.
        device: `cpu` or `cuda`.
        precision: `bf16` runs a frozen backbone in bf16 (a tuned one under autocast); learned
            tensors and the head stay fp32. `auto` is the backbone's default where the hardware
            has bf16, else fp32. `fp16` is for devices without bf16, its losses scaled.
        token_budget: padded tokens in a micro-batch, at most; bounds memory.
        checkpointing: recompute activations in the backward: less memory, more time.
        population: members that are trained together, at most.
        fp16_scaling: divide the residual stream of a T5 by 100, as PPT does: the same function to
            rounding, in numbers that fp16 holds.
    """

    checkpointing: bool = field(kw_only=True)
    population: int = field(kw_only=True, default=8)
    fp16_scaling: bool = field(kw_only=True, default=False)
    world: Ranks = field(default=ALONE, init=False)
    speed: Speed = field(default_factory=Speed, init=False)

    def __post_init__(self) -> None:
        """Refuse a device that is not there."""
        if self.device == "cuda" and not torch.cuda.is_available():
            raise UserError("hardware.device=cuda: this machine has no CUDA; type hardware=cpu.")
        for name in ("token_budget", "population"):
            if getattr(self, name) < 1:
                raise UserError(f"hardware.{name} is {getattr(self, name)}; use 1 or more.")
        check_fp16(self.backbone, self.precision, scaled=self.fp16_scaling)
        self._guard = Guard(self)
        if self.precision == "auto":
            wanted = self.backbone.dtype if has_bf16(self.device) else "fp32"
            self.precision = "bf16" if wanted == "bf16" else "fp32"

    def connect(self) -> Ranks:
        """Join the other processes of the run, if it has any."""
        return self.world

    def load(self, *, tuned: bool) -> None:
        """Read the backbone's weights in the precision that suits."""
        self.backbone.load(self.weight_type(tuned=tuned), self.device)

    def whole(self, method: Method) -> dict[str, Tensor]:
        """Return what a method exports, on the process that writes."""
        return method.exported()

    def equip(self, member: Member) -> None:
        """Give a member what takes its steps."""
        if self.precision == "fp16":
            member.stepper = ScaledStepper(member.optimizer, member.learned)

    def place(self, methods: Sequence[Method]) -> None:
        """Move the backbone and the methods to the device, the backbone in its precision.

        Raises:
            UserError: several members would tune or change one backbone.
        """
        alone = [method for method in methods if method.alone]
        if alone and len(methods) > 1:
            name, does = type(alone[0]).__name__, "tunes" if alone[0].tunes_backbone else "changes"
            raise UserError(
                f"{name} {does} the backbone, so its runs cannot share one: got {len(methods)} "
                "members; run them one by one."
            )
        tuned = any(method.tunes_backbone for method in methods)
        detach(self.backbone.model)
        if self.fp16_scaling:
            scale_frozen(self.backbone, methods)
        self.backbone.model.to(self.device, self.weight_type(tuned=tuned))
        self.backbone.kept.clear()
        self.backbone.checkpoint(self.checkpointing)
        for method in methods:
            method.to(self.device)
            method.placed()

    def weight_type(self, *, tuned: bool) -> torch.dtype:
        """Return the precision of the backbone's weights: a tuned one keeps fp32."""
        return torch.float32 if tuned else HALVES.get(self.precision, torch.float32)

    def fit(self, members: Sequence[Member]) -> None:
        """Train every member to its end; each selects, stops, fails and saves on its own.

        At most `population` share a pass.
        """
        for start in range(0, len(members), self.population):
            self._fit(members[start : start + self.population])

    def _fit(self, members: Sequence[Member]) -> None:
        for member in members:
            self.equip(member)
            if member.resume():
                _LOG.info("going on from step %d of %d", member.step, member.total)
        self._guard.resume(members)
        methods = [member.method for member in members]
        self._prepare(methods, [member.reads() for member in members], training=True)
        self._prepare(methods, [member.dev for member in members])
        self._evaluate([member for member in members if member.due_first])
        total = sum(member.total for member in members)
        done = sum(member.step for member in members)
        with meter(total, done, quiet=not self.world.main) as shown:
            while active := [member for member in members if member.active]:
                started = time.monotonic()
                losses, tokens = self._guard.accumulate(active)
                for member, loss, own in zip(active, losses, tokens, strict=True):
                    member.update(loss, own)
                self._evaluate([member for member in active if member.due])
                late = self.world.broadcast([member.late for member in active])
                for member, waited in zip(active, late, strict=True):
                    if member.due or waited:
                        member.save()
                self.speed.seconds += time.monotonic() - started
                self.speed.tokens += sum(tokens)
                self.speed.steps += len(active)
                first = active[0]
                shown.show(
                    sum(member.step for member in members),
                    losses[0],
                    first.metric,
                    first.best_value if first.best else None,
                    sum(tokens),
                )

    def _evaluate(self, due: Sequence[Member]) -> None:
        if due:
            answers = self.predict([m.method for m in due], [m.dev for m in due])
            for member, own in zip(due, answers, strict=True):
                member.judge(own)

    def _accumulate(self, members: Sequence[Member]) -> tuple[list[float], list[int]]:
        """Add up the gradients of one step; return each member's mean loss and real tokens.

        A member's loss is divided by its own number of targets, so the gradient is that of its
        batch in one piece, whoever shares the passes.
        """
        items = [
            Item(owner, slot, f)
            for owner, member in enumerate(members)
            for slot, f in enumerate(member.batch())
        ]
        targets, tokens = [0] * len(members), [0] * len(members)
        for item in items:
            targets[item.owner] += len(item.features.targets)
            tokens[item.owner] += item.features.tokens
        self._check_rows(items, members[0].step + 1)
        losses = [torch.zeros((), device=self.device) for _ in members]
        methods = [member.method for member in members]
        for part in self._cut(self._own(items)):
            batches = {
                owner: self._collate(
                    [i.features for i in own], members[owner].keys([i.slot for i in own])
                )
                for owner, own in by_owner(part).items()
            }
            parts = {
                owner: methods[owner].loss(output, batches[owner]) / max(1, targets[owner])
                for owner, output in self._forward(methods, batches).items()
            }
            scaled = [loss * members[owner].stepper.scale for owner, loss in parts.items()]
            torch.stack(scaled).sum().backward()  # type: ignore[no-untyped-call]
            for owner, loss in parts.items():
                losses[owner] += loss.detach()
        return self.world.total([float(loss) for loss in losses]), tokens

    def _check_rows(self, items: Sequence[Item], step: int) -> None:
        """Check that processes which hold one model together read the same rows."""
        if self.world.model_parallel > 1:
            rows = [(item.features.id, item.features.targets) for item in items]
            self.world.check_same(zlib.crc32(repr(rows).encode()), step)


def has_bf16(device: str) -> bool:
    """Return whether bf16 matrix products run in hardware."""
    if device == "cuda":
        return bool(torch.cuda.is_bf16_supported())
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
