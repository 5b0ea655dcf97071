"""Plain torch: one training loop for one or many members over one backbone.

ptrun hardware=cpu        ptrun hardware=gpu hardware.precision=fp32
"""

import logging
import time
import weakref
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from ptrun.backbone.peft.layers import detach
from ptrun.backbone.quantization.formats import Quantization
from ptrun.config.schema import Select
from ptrun.errors import MemoryRanOut, UserError
from ptrun.hardware.compile import Compilation, Compile
from ptrun.hardware.fp16 import check_fp16, scale
from ptrun.hardware.free_memory import forget, free, together, why_no_gpu
from ptrun.hardware.precision import check_bf16, no_tf32, resolved
from ptrun.hardware.quantization import check_frozen, check_quantization
from ptrun.hardware.ranks import ALONE, Ranks
from ptrun.method.base import Method
from ptrun.readout.base import Features
from ptrun.training import stopping
from ptrun.training.loss_scale import ScaledStepper
from ptrun.training.member import Member, save
from ptrun.training.out_of_memory import Guard, is_out_of_memory
from ptrun.training.passes import HALVES, Item, Passes, by_owner, items_of
from ptrun.training.progress import meter
from ptrun.types import Prediction

_LOG = logging.getLogger(__name__)


@dataclass
class Speed:
    """Totals of training steps: seconds without evaluation, real (not padded) tokens, and steps."""

    seconds: float = 0.0
    tokens: int = 0
    steps: int = 0

    def per_second(self) -> float:
        """Return real tokens a second."""
        return self.tokens / self.seconds if self.seconds else 0.0


@dataclass
class TorchEngine(Passes):
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
        compile: compile dropout into one pass over memory; the results are the same bits. `auto`
            does so on a GPU if the training left takes more than 5 minutes and triton is there.
        quantization: hold the linear maps of a frozen backbone in 8 or 4 bits: `int8` or `nf4`.
        fp16_scaling: divide the residual stream of a T5 by 100, as in PPT: the same function up to
            rounding, without overflow in fp16. A tuned backbone learns the divided tensors.
    """

    counts: ClassVar[Sequence[str]] = ("token_budget", "population")
    population: int = field(kw_only=True, default=32)
    compile: Compile = field(kw_only=True, default="auto")
    quantization: Quantization = field(kw_only=True, default="none")
    fp16_scaling: bool = field(kw_only=True, default=False)
    world: Ranks = field(default=ALONE, init=False)
    speed: Speed = field(default_factory=Speed, init=False)

    def __post_init__(self) -> None:
        """Check the fields, and choose the precision."""
        if self.device == "cuda" and not torch.cuda.is_available():
            raise UserError(f"hardware.device=cuda, but {why_no_gpu()}")
        for name in self.counts:
            count = getattr(self, name)
            if count is not None and count < 1:
                raise UserError(f"hardware.{name} is {count}; use 1 or more.")
        self.precision = resolved(self.precision, self.device, self.backbone.dtype)
        check_fp16(self.backbone, self.precision, scaled=self.fp16_scaling)
        check_bf16(self.precision, self.device)
        no_tf32(self.precision)
        if self.quantization != "none":
            check_quantization(self.backbone, self.quantization, scaled=self.fp16_scaling)
            self.backbone.quantize(self.quantization)
        self._compilation = Compilation(self.compile, self.device)
        # in a cycle the backbone would stay in memory after its run
        self._guard = Guard(weakref.proxy(self))

    def connect(self) -> Ranks:
        """Join the other processes of the run, if there are any."""
        return self.world

    def load(self, *, tuned: bool) -> None:
        """Load the backbone's weights in the precision of `weight_type`.

        Raises:
            UserError: they cannot be loaded, or are to be quantized and tuned.
        """
        check_frozen(self.quantization, tuned=tuned)
        if self.device == "cuda":
            forget()
        with self._holding(self.weight_type(tuned=tuned)):
            self.backbone.load(self.weight_type(tuned=tuned), self.device)

    def whole(self, method: Method) -> dict[str, Tensor]:
        """Return a method's exported tensors, on the rank that writes them."""
        return method.exported()

    def equip(self, member: Member) -> None:
        """Choose the member's stepper."""
        if self.precision == "fp16":
            member.stepper = ScaledStepper(member.optimizer, member.learned)

    def place(self, methods: Sequence[Method]) -> None:
        """Move the backbone, in its precision, and the methods to the device.

        Raises:
            UserError: several members tune or change one backbone.
        """
        alone = [method for method in methods if method.alone]
        if alone and len(methods) > 1:
            name, verb = type(alone[0]).__name__, "tunes" if alone[0].tunes_backbone else "changes"
            raise UserError(
                f"{name} {verb} the backbone, so its runs cannot share one: got {len(methods)} "
                "members; run them one by one."
            )
        tuned = any(method.tunes_backbone for method in methods)
        detach(self.backbone.model)
        if self.fp16_scaling:
            scale(self.backbone, methods)
        with self._holding(self.weight_type(tuned=tuned)):
            self.backbone.model.to(self.device, self.weight_type(tuned=tuned))
        self.backbone.kept.clear()
        self.backbone.checkpoint(self.checkpointing)
        for method in methods:
            method.to(self.device)
            method.placed()

    @contextmanager
    def _holding(self, dtype: torch.dtype) -> Iterator[None]:
        """Say how much memory the weights need if the device has too little.

        Raises:
            MemoryRanOut: it has.
        """
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

    def fit(self, members: Sequence[Member]) -> None:
        """Train the members, as many together as fit in memory and `population` allows.

        Each member selects, stops, fails and saves on its own.
        """
        size = together(members, self.device, self.population)
        if size < min(len(members), self.population):
            _LOG.warning("%d of %d runs at a time: more do not fit in memory", size, len(members))
        for start in range(0, len(members), size):
            self._fit(members[start : start + size])
        self._guard.members = ()

    def _fit(self, members: Sequence[Member]) -> None:
        self._guard.members = members
        for member in members:
            self.equip(member)
            if member.resume():
                _LOG.info("resuming from step %d of %d", member.step, member.total)
        self._guard.resume(members)
        methods = [member.method for member in members]
        self._prepare(methods, [member.reads() for member in members], training=True)
        self._prepare(methods, [member.dev for member in members])
        self._evaluate([member for member in members if member.due_first])
        total = sum(member.total for member in members)
        done = sum(member.step for member in members)
        with meter(total, done, quiet=not self.world.main) as bar, stopping.training():
            while active := [member for member in members if member.active]:
                started = time.monotonic()
                losses, tokens = self._step(active)
                self.speed.seconds += time.monotonic() - started
                self.speed.tokens += sum(tokens)
                self.speed.steps += len(active)
                left = sum(member.total - member.step for member in members)
                self._compilation.consider(self.speed.seconds / self.speed.steps * left)
                self._judge(active)
                done, first = sum(member.step for member in members), active[0]
                best = first.best_value if first.best else None
                bar.show(done, losses[0], first.metric, best, sum(tokens))

    def _step(self, members: Sequence[Member]) -> tuple[list[float], list[int]]:
        """Take one step of each member; return its mean loss and real tokens.

        The host waits for the device once, for all losses and norms.
        """
        self._guard.members = members
        sums, tokens = self._guard.passes(lambda: self._accumulate(members))
        norms = [member.stepper.clip(member.train.clip) for member in members]
        numbers = [tensor.to(self.device, torch.float64) for tensor in (*sums, *norms)]
        figures: list[float] = torch.stack(numbers).tolist()
        losses = self.world.total(figures[: len(members)])
        for each in zip(members, losses, figures[len(members) :], tokens, strict=True):
            self._guard.step(*each)
        return losses, tokens

    def _judge(self, active: Sequence[Member]) -> None:
        """Evaluate the members that are due. Save all if one is due; after a signal stop, too.

        Raises:
            Stopped: a signal arrived.
        """
        self._evaluate([member for member in active if member.due])
        own = [member.late for member in active], stopping.received()
        late, signal = self.world.broadcast(own)
        if signal is not None or any(late) or any(member.due for member in active):
            save(active)
        if signal is not None:
            raise stopping.Stopped(signal, max(member.step for member in active))

    def evaluate(
        self,
        methods: Sequence[Method],
        features: Sequence[Sequence[Features]],
        *,
        losses: bool = False,
    ) -> tuple[list[list[Prediction]], list[float]]:
        """Return predictions and losses, as `Passes.evaluate`.

        Raises:
            MemoryRanOut: one example does not fit in memory.
        """
        evaluate = super().evaluate
        return self._guard.passes(
            lambda: evaluate(methods, features, losses=losses), "an evaluation"
        )

    def _prepare(
        self,
        methods: Sequence[Method],
        features: Sequence[Sequence[Features]],
        *,
        training: bool = False,
    ) -> None:
        prepare = super()._prepare
        self._guard.passes(
            lambda: prepare(methods, features, training=training), "the passes before training"
        )

    def _evaluate(self, due: Sequence[Member]) -> None:
        if not due:
            return
        losses = any(member.train.select is Select.loss for member in due)
        methods, features = [m.method for m in due], [m.dev for m in due]
        predictions, means = self.evaluate(methods, features, losses=losses)
        for index, member in enumerate(due):
            member.judge(predictions[index], means[index] if losses else None)

    def _accumulate(self, members: Sequence[Member]) -> tuple[list[Tensor], list[int]]:
        """Add up the gradients of one step; return each member's mean loss `[]` and real tokens.

        A member's loss is divided by its own number of targets. So the gradient does not depend on
        micro-batches or on other members.
        """
        items = items_of([member.batch() for member in members])
        targets, tokens = [0] * len(members), [0] * len(members)
        for item in items:
            targets[item.owner] += len(item.features.targets)
            tokens[item.owner] += item.features.tokens
        self._check_rows(items, members[0].step + 1)
        losses = [torch.zeros((), device=self.device) for _ in members]
        methods = [member.method for member in members]
        for part in self._parts(members, items):
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
        return losses, tokens

    def _parts(self, members: Sequence[Member], items: list[Item]) -> list[list[Item]]:
        """Return the micro-batches of a step: one if a loss needs all rows of a member at once."""
        if not any(needs_all_rows(member.method) for member in members):
            return self._cut(self._own(items))
        self.largest = len(items) * max(item.features.tokens for item in items)
        return [items]

    def _check_rows(self, items: Sequence[Item], step: int) -> None:
        """Check that ranks which hold one model together read the same rows."""
        if self.world.model_parallel > 1:
            rows = [(item.features.id, item.features.targets) for item in items]
            self.world.check_same(zlib.crc32(repr(rows).encode()), step)


def needs_all_rows(method: Method) -> bool:
    """Return whether a method's loss is no sum over examples, so that they cannot be divided."""
    return method.reading.whole
