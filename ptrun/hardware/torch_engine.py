"""Plain torch: one loop for one or many members over one backbone.

ptrun hardware=cpu        ptrun hardware=gpu hardware.precision=fp32
"""

import logging
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Literal

import torch

from ptrun.backbone.base import BackboneOutput
from ptrun.backbone.low_rank import detach
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from ptrun.hardware.fp16 import check_fp16, scale_frozen
from ptrun.hardware.join import join
from ptrun.hardware.loss_scale import ScaledStepper
from ptrun.hardware.member import Member
from ptrun.hardware.microbatch import cut, overhead
from ptrun.hardware.out_of_memory import Guard
from ptrun.hardware.progress import meter, track
from ptrun.method.base import Method
from ptrun.readout.base import Batch, Features, collate
from ptrun.types import Prediction

_LOG = logging.getLogger(__name__)
Precision = Literal["auto", "fp32", "bf16", "fp16"]
_HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass
class Item:
    """One example of a step, whoever's it is."""

    owner: int
    slot: int
    features: Features


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
class TorchEngine:
    """Knows device and precision, joins members into passes, and takes their steps.

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

    backbone: PretrainedBackbone
    device: str = field(kw_only=True)
    precision: Precision = field(kw_only=True)
    token_budget: int = field(kw_only=True)
    checkpointing: bool = field(kw_only=True)
    population: int = field(kw_only=True, default=8)
    fp16_scaling: bool = field(kw_only=True, default=False)
    speed: Speed = field(default_factory=Speed, init=False)
    largest: int = field(default=0, init=False)

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
            wanted = self.backbone.dtype if _has_bf16(self.device) else "fp32"
            self.precision = "bf16" if wanted == "bf16" else "fp32"

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
        return torch.float32 if tuned else _HALVES.get(self.precision, torch.float32)

    def fit(self, members: Sequence[Member]) -> None:
        """Train every member to its end; each selects, stops, fails and saves on its own.

        At most `population` share a pass.
        """
        for start in range(0, len(members), self.population):
            self._fit(members[start : start + self.population])

    def _fit(self, members: Sequence[Member]) -> None:
        for member in members:
            if self.precision == "fp16":
                member.stepper = ScaledStepper(member.optimizer, member.learned)
            if member.resume():
                _LOG.info("going on from step %d of %d", member.step, member.total)
        self._guard.resume(members)
        methods = [member.method for member in members]
        self._prepare(methods, [member.reads() for member in members], training=True)
        self._prepare(methods, [member.dev for member in members])
        self._evaluate([member for member in members if member.due_first])
        total = sum(member.total for member in members)
        with meter(total, sum(member.step for member in members)) as shown:
            while active := [member for member in members if member.active]:
                started = time.monotonic()
                losses, tokens = self._guard.accumulate(active)
                for member, loss, own in zip(active, losses, tokens, strict=True):
                    member.update(loss, own)
                self._evaluate([member for member in active if member.due])
                for member in active:
                    member.save(force=member.due)
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

    @torch.no_grad()
    def predict(
        self, methods: Sequence[Method], features: Sequence[Sequence[Features]]
    ) -> list[list[Prediction]]:
        """Return each method's answers to its own features, in their order."""
        waiting = [
            Item(owner, slot, f) for owner, own in enumerate(features) for slot, f in enumerate(own)
        ]
        answers: list[dict[int, Prediction]] = [{} for _ in methods]
        while waiting:  # a read-out may want to read an example once more
            rows = [[i.features for i in waiting if i.owner == o] for o in range(len(methods))]
            self._prepare(methods, rows)
            waiting = [
                item for part in self._cut(waiting) for item in self._ask(methods, part, answers)
            ]
        return [[own[slot] for slot in range(len(own))] for own in answers]

    @torch.no_grad()
    def _prepare(
        self,
        methods: Sequence[Method],
        features: Sequence[Sequence[Features]],
        *,
        training: bool = False,
    ) -> None:
        """Let methods look once at what they will read: IDPG's pass over the bare text."""
        for method, own in zip(methods, features, strict=True):
            wanted = method.unprepared(own, training=training)
            items = [Item(0, slot, f) for slot, f in enumerate(wanted)]
            for part in track(self._cut(items) if items else [], "looking at texts"):
                method.prepare(self._collate([item.features for item in part]))

    def _ask(
        self,
        methods: Sequence[Method],
        items: Sequence[Item],
        answers: Sequence[dict[int, Prediction]],
    ) -> list[Item]:
        """Note what is answered; return what is to be read again."""
        again = []
        groups = _by_owner(items)
        batches = {o: self._collate([i.features for i in own]) for o, own in groups.items()}
        for owner, output in self._forward(methods, batches).items():
            decoded = methods[owner].decode(output, batches[owner])
            for item, answer in zip(groups[owner], decoded, strict=True):
                if isinstance(answer, Features):
                    again.append(Item(owner, item.slot, answer))
                else:
                    answers[owner][item.slot] = answer
        return again

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
        losses = [torch.zeros((), device=self.device) for _ in members]
        methods = [member.method for member in members]
        for part in self._cut(items):
            batches = {
                owner: self._collate(
                    [i.features for i in own], members[owner].keys([i.slot for i in own])
                )
                for owner, own in _by_owner(part).items()
            }
            parts = {
                owner: methods[owner].loss(output, batches[owner]) / max(1, targets[owner])
                for owner, output in self._forward(methods, batches).items()
            }
            scaled = [loss * members[owner].stepper.scale for owner, loss in parts.items()]
            torch.stack(scaled).sum().backward()  # type: ignore[no-untyped-call]
            for owner, loss in parts.items():
                losses[owner] += loss.detach()
        return [float(loss) for loss in losses], tokens

    def _cut(self, items: Sequence[Item]) -> list[list[Item]]:
        shape = self.backbone.shape
        price = overhead(shape.layers + shape.decoder_layers, shape.hidden_size)
        lengths = [item.features.tokens for item in items]
        parts = cut(lengths, self.token_budget, price)
        self.largest = max((len(p) * max(lengths[index] for index in p) for p in parts), default=0)
        return [[items[index] for index in part] for part in parts]

    def _collate(self, features: Sequence[Features], keys: torch.Tensor | None = None) -> Batch:
        return collate(features, keys, torch.device(self.device))

    def _forward(
        self, methods: Sequence[Method], batches: dict[int, Batch]
    ) -> dict[int, BackboneOutput]:
        joined = join([methods[owner].inputs(batch) for owner, batch in batches.items()])
        with self._autocast():
            output = self.backbone.forward(joined.given)
        return dict(zip(batches, joined.split(output), strict=True))

    def _autocast(self) -> AbstractContextManager[None]:
        """A tuned backbone keeps fp32 weights and computes in halves; a frozen one has halves."""
        tuned = next(iter(self.backbone.model.parameters())).dtype is torch.float32
        half = _HALVES.get(self.precision)
        return torch.autocast(self.device, half, enabled=half is not None and tuned)


def _by_owner(items: Sequence[Item]) -> dict[int, list[Item]]:
    groups: dict[int, list[Item]] = {}
    for item in sorted(items, key=lambda item: item.owner):
        groups.setdefault(item.owner, []).append(item)
    return groups


def _has_bf16(device: str) -> bool:
    """Return whether bf16 matrix products run in hardware."""
    if device == "cuda":
        return bool(torch.cuda.is_bf16_supported())
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
