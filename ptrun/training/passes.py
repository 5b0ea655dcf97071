"""Rows of one or many members in passes of one backbone: joined, cut by length, read, answered."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Literal

import torch

from ptrun.backbone.base import BackboneInput, BackboneOutput
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.method.base import Method
from ptrun.readout.base import Batch, Features, collate
from ptrun.training.join import join
from ptrun.training.microbatch import cut, overhead
from ptrun.training.progress import track
from ptrun.training.world import Alone, World
from ptrun.types import Prediction

Precision = Literal["auto", "fp32", "bf16", "fp16"]
HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass
class Item:
    """One example of a step, whoever's it is."""

    owner: int
    slot: int
    features: Features


@dataclass
class Passes:
    """What a backbone reads, in micro-batches.

    Args:
        backbone: loaded, shared by all members.
        device, precision, token_budget: as of the engine.
    """

    backbone: PretrainedBackbone
    device: str = field(kw_only=True)
    precision: Precision = field(kw_only=True)
    token_budget: int = field(kw_only=True)
    world: World = field(default_factory=Alone, init=False)
    """The processes that do the run together: this one alone."""
    largest: int = field(default=0, init=False)
    """Padded tokens of the largest micro-batch that was last cut."""

    @torch.no_grad()
    def predict(
        self, methods: Sequence[Method], features: Sequence[Sequence[Features]]
    ) -> list[list[Prediction]]:
        """Return each method's answers to its own features, in their order."""
        waiting = [
            Item(owner, slot, f) for owner, own in enumerate(features) for slot, f in enumerate(own)
        ]
        waiting = self._own(waiting)
        answers: dict[tuple[int, int], Prediction] = {}
        while waiting:  # a read-out may want to read an example once more
            rows = [[i.features for i in waiting if i.owner == o] for o in range(len(methods))]
            self._prepare(methods, rows)
            waiting = [
                item for part in self._cut(waiting) for item in self._ask(methods, part, answers)
            ]
        known = self.world.merged(answers)
        return [[known[o, slot] for slot in range(len(own))] for o, own in enumerate(features)]

    def _own(self, items: list[Item]) -> list[Item]:
        """Return this process' share of rows, as long as the others'."""
        if self.world.data_parallel == 1:
            return items
        ordered = sorted(items, key=lambda item: item.features.tokens)
        return ordered[self.world.share :: self.world.data_parallel]

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
            for part in track(self._cut(items), "looking at texts"):
                method.prepare(self._collate([item.features for item in part]))

    def _ask(
        self,
        methods: Sequence[Method],
        items: Sequence[Item],
        answers: dict[tuple[int, int], Prediction],
    ) -> list[Item]:
        """Note what is answered; return what is to be read again."""
        again = []
        groups = by_owner(items)
        batches = {o: self._collate([i.features for i in own]) for o, own in groups.items()}
        for owner, output in self._forward(methods, batches).items():
            decoded = methods[owner].decode(output, batches[owner])
            for item, answer in zip(groups[owner], decoded, strict=True):
                if isinstance(answer, Features):
                    again.append(Item(owner, item.slot, answer))
                else:
                    answers[owner, item.slot] = answer
        return again

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
        """Return each member's output; those that learn without dropout have a pass of their own.

        A pass is with keys for all rows or for none.
        """
        given = {owner: methods[owner].inputs(batch) for owner, batch in batches.items()}
        keyed = {owner: own for owner, own in given.items() if own.keys is not None}
        plain = {owner: own for owner, own in given.items() if own.keys is None}
        made = {o: out for own in (keyed, plain) if own for o, out in self._pass(own).items()}
        return {owner: made[owner] for owner in batches}

    def _pass(self, given: Mapping[int, BackboneInput]) -> dict[int, BackboneOutput]:
        """Run the backbone once on the inputs of several members."""
        joined = join(list(given.values()))
        with self._autocast():
            output = self.backbone.forward(joined.given)
        return dict(zip(given, joined.split(output), strict=True))

    def _autocast(self) -> AbstractContextManager[None]:
        """A tuned backbone keeps fp32 weights and computes in halves; a frozen one has halves."""
        tuned = next(iter(self.backbone.model.parameters())).dtype is torch.float32
        half = HALVES.get(self.precision)
        return torch.autocast(self.device, half, enabled=half is not None and tuned)


def by_owner(items: Sequence[Item]) -> dict[int, list[Item]]:
    """Return items by the member that owns them."""
    groups: dict[int, list[Item]] = {}
    for item in sorted(items, key=lambda item: item.owner):
        groups.setdefault(item.owner, []).append(item)
    return groups
