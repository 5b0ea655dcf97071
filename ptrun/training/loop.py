"""Forward passes of one backbone over the rows of one or many members, in micro-batches."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import torch

from ptrun.backbone.base import BackboneInput, BackboneOutput
from ptrun.backbone.packing.groups import cut, fill, overhead
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.config.schema import Precision
from ptrun.method.base import Method
from ptrun.readout.base import Batch, Features, collate
from ptrun.training.join import join
from ptrun.training.progress import track
from ptrun.training.world import World
from ptrun.types import Prediction

HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass
class Item:
    """One example of a step: the index of its member, its place there, and its features."""

    owner: int
    slot: int
    features: Features


@dataclass
class Passes:
    """Runs the backbone that all members share; `TorchEngine` documents the fields."""

    backbone: PretrainedBackbone
    device: str = field(kw_only=True)
    precision: Precision = field(kw_only=True)
    token_budget: int = field(kw_only=True)
    checkpointing: bool = field(kw_only=True)
    world: World = field(init=False)
    """The processes of the run."""
    largest: int = field(default=0, init=False)
    """Number of padded tokens in the largest of the last micro-batches."""

    def predict(
        self, methods: Sequence[Method], features: Sequence[Sequence[Features]]
    ) -> list[list[Prediction]]:
        """Return each method's predictions for its own features, in their order."""
        return self.evaluate(methods, features)[0]

    @torch.no_grad()
    def evaluate(
        self,
        methods: Sequence[Method],
        features: Sequence[Sequence[Features]],
        *,
        losses: bool = False,
    ) -> tuple[list[list[Prediction]], list[float]]:
        """Return each method's predictions and, with `losses`, its mean loss over targets."""
        waiting = self._own(items_of(features))
        done: dict[tuple[int, int], Prediction] = {}
        sums = [0.0 for _ in methods if losses]
        while waiting:  # a read-out may need several passes over an example
            rows = [[i.features for i in waiting if i.owner == o] for o in range(len(methods))]
            self._prepare(methods, rows)
            parts = self._cut(waiting)
            waiting = [i for part in parts for i in self._read(methods, part, done, sums)]
        done = self.world.merged(done)
        predictions = [[done[o, i] for i in range(len(own))] for o, own in enumerate(features)]
        counts = [sum(len(f.targets) for f in own) for own in features]
        totals = self.world.total(sums) if losses else []
        return predictions, [total / max(1, n) for total, n in zip(totals, counts, strict=False)]

    def _own(self, items: list[Item]) -> list[Item]:
        """Return this process' share of the items, with rows as long as the others'."""
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
        """Run the passes that methods need before training or prediction (IDPG's M(x))."""
        for method, own in zip(methods, features, strict=True):
            items = items_of([method.unprepared(own, training=training)])
            for part in track(self._cut(items), "preparing texts"):
                method.prepare(self._collate([item.features for item in part]))

    def _read(
        self,
        methods: Sequence[Method],
        items: Sequence[Item],
        done: dict[tuple[int, int], Prediction],
        sums: list[float],
    ) -> list[Item]:
        """Add predictions to `done` and losses to `sums`; return items that need another pass."""
        again = []
        groups = by_owner(items)
        batches = {o: self._collate([i.features for i in own]) for o, own in groups.items()}
        for owner, output in self._forward(methods, batches).items():
            decoded = methods[owner].decode(output, batches[owner])
            if sums:
                sums[owner] += float(methods[owner].loss(output, batches[owner]))
            for item, result in zip(groups[owner], decoded, strict=True):
                if isinstance(result, Features):
                    again.append(Item(owner, item.slot, result))
                else:
                    done[owner, item.slot] = result
        return again

    def _cut(self, items: Sequence[Item]) -> list[list[Item]]:
        shape, lengths = self.backbone.shape, [item.features.tokens for item in items]
        if self.backbone.architecture.visible is not None:  # it reads packed tokens
            parts = fill(lengths, [item.owner for item in items], self.token_budget)
            sizes = [sum(lengths[index] for index in part) for part in parts]
        else:
            price = overhead(shape.layers + shape.decoder_layers, shape.hidden_size)
            parts = cut(lengths, self.token_budget, price)
            sizes = [len(part) * max(lengths[index] for index in part) for part in parts]
        self.largest = max(sizes, default=0)
        return [[items[index] for index in part] for part in parts]

    def _collate(self, features: Sequence[Features], keys: torch.Tensor | None = None) -> Batch:
        return collate(features, keys, torch.device(self.device))

    def _forward(
        self, methods: Sequence[Method], batches: dict[int, Batch]
    ) -> dict[int, BackboneOutput]:
        """Return each member's output; rows with and without dropout keys run in two passes."""
        inputs = {owner: methods[owner].inputs(batch) for owner, batch in batches.items()}
        keyed = {owner: own for owner, own in inputs.items() if own.keys is not None}
        plain = {owner: own for owner, own in inputs.items() if own.keys is None}
        outputs = {o: out for own in (keyed, plain) if own for o, out in self._pass(own).items()}
        return {owner: outputs[owner] for owner in batches}

    def _pass(self, inputs: Mapping[int, BackboneInput]) -> dict[int, BackboneOutput]:
        """Run the backbone once on the inputs of several members."""
        joined = join(list(inputs.values()))
        with self._autocast():
            output = self.backbone.forward(joined.given)
        return dict(zip(inputs, joined.split(output), strict=True))

    def _autocast(self) -> AbstractContextManager[None]:
        """Compute in half precision over fp32 weights: those of a tuned backbone."""
        tuned = next(iter(self.backbone.model.parameters())).dtype is torch.float32
        half = HALVES.get(self.precision)
        return torch.autocast(self.device, half, enabled=half is not None and tuned)


def items_of(features: Sequence[Sequence[Features]]) -> list[Item]:
    """Return the items of all members' features."""
    return [
        Item(owner, slot, f) for owner, own in enumerate(features) for slot, f in enumerate(own)
    ]


def by_owner(items: Sequence[Item]) -> dict[int, list[Item]]:
    """Return the items of each member."""
    groups: dict[int, list[Item]] = {}
    for item in sorted(items, key=lambda item: item.owner):
        groups.setdefault(item.owner, []).append(item)
    return groups
