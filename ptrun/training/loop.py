"""The training loop: steps of one or many members over one backbone, and their evaluations.

`Loop.fit` is read from top to bottom. An engine (`ptrun.hardware`) adds a device, a precision, the
ranks, and what takes the optimizer's steps.
"""

import logging
import time
import weakref
import zlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ptrun.backbone.base import BackboneInput, BackboneOutput, tensors_of
from ptrun.backbone.choosing import Decoding
from ptrun.backbone.generation import generate
from ptrun.backbone.joining import join, split
from ptrun.backbone.packing import Room, cut, fill, overhead, rooms
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.config.schema import Precision
from ptrun.method.base import Method
from ptrun.method.tokenized import KEPT
from ptrun.readout.base import (
    Batch,
    Features,
    collate,
    fixed_tensors,
    padded,
    together,
    unfilled,
    with_tensors,
)
from ptrun.training import stopping
from ptrun.training.member import Member, save
from ptrun.training.out_of_memory import MemoryGuard
from ptrun.training.progress import meter, track
from ptrun.types import Prediction

if TYPE_CHECKING:
    from ptrun.training.graphs import Graphs

_LOG = logging.getLogger(__name__)
HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass
class Item:
    """One example of a step: the index of its member, its place there, and its features."""

    owner: int
    slot: int
    features: Features


@dataclass(frozen=True)
class Batches:
    """The batches of a pass.

    Args:
        of: that of each member.
        filled: the same in a size that other passes have too; none if passes are not replayed.
        content: what `filled` is read from, as bytes on the device.
    """

    of: Mapping[int, Batch]
    filled: Mapping[int, Batch] = field(default_factory=dict)
    content: Tensor | None = None


@dataclass
class Asked:
    """What an evaluation asks of each method, and the answers so far.

    `losses` says whether they are summed, and `texts` which methods write, if their answer is a
    text. `all_labels` says whose predictions keep the probabilities of all labels.
    """

    methods: Sequence[Method]
    losses: bool
    texts: Sequence[bool]
    all_labels: Sequence[bool]
    sums: list[float] = field(default_factory=list)
    done: dict[tuple[int, int], Prediction] = field(default_factory=dict)


@dataclass
class Speed:
    """Totals of training steps: seconds without evaluation, real (not padded) tokens, and steps.

    `evaluating` are the seconds of evaluations and predictions.
    """

    seconds: float = 0.0
    evaluating: float = 0.0
    tokens: int = 0
    steps: int = 0

    def per_second(self) -> float:
        """Return real tokens a second."""
        return self.tokens / self.seconds if self.seconds else 0.0


@dataclass
class Sent:
    """A step of members whose figures `[2 * members]`, losses and then norms, are not read yet.

    `before` is how many steps each took before, `tokens` its real tokens.
    """

    members: Sequence[Member]
    before: Sequence[int]
    tokens: Sequence[int]
    figures: Tensor

    def __post_init__(self) -> None:
        """Send a copy to pinned memory. A read in place would wait for later work, too."""
        self._copied = torch.cuda.Event() if self.figures.is_cuda else None  # type: ignore[no-untyped-call]
        self.figures = self.figures.to("cpu", non_blocking=True)
        if self._copied is not None:
            self._copied.record()

    def read(self) -> list[float]:
        """Wait for the figures, and return them."""
        if self._copied is not None:
            self._copied.synchronize()
        figures: list[float] = self.figures.tolist()
        return figures


@dataclass
class Loop(ABC):
    """Trains members that share the passes of one backbone; `TorchEngine` documents the fields."""

    backbone: PretrainedBackbone
    device: str = field(kw_only=True)
    precision: Precision = field(kw_only=True)
    token_budget: int = field(kw_only=True)
    checkpointing: bool = field(kw_only=True)
    world: Any = field(init=False)
    """The processes of the run: `ptrun.hardware.ranks.Ranks`."""
    largest: int = field(default=0, init=False)
    """Number of padded tokens in the largest of the last micro-batches."""
    speed: Speed = field(default_factory=Speed, init=False)
    graphs: "Graphs | None" = field(default=None, init=False)
    """The passes that are replayed, where the device can."""

    def __post_init__(self) -> None:
        """Guard the passes against memory that runs out."""
        self._sent: list[Sent] = []
        self.lag = int(self.device == "cuda")  # steps that are sent before one is read
        # in a cycle the backbone would stay in memory after its run
        self._guard = MemoryGuard(weakref.proxy(self))

    @abstractmethod
    def equip(self, member: Member) -> None:
        """Choose the member's stepper."""

    @abstractmethod
    def together(self, members: Sequence[Member]) -> tuple[int, int]:
        """Return how many members fit in memory at a time, and the most that are allowed."""

    def fit(self, members: Sequence[Member]) -> None:
        """Train the members, as many together as fit in memory and `population` allows.

        Each member selects, stops, fails and saves on its own.
        """
        size, most = self.together(members)
        if size < min(len(members), most):
            _LOG.warning("%d of %d runs at a time: more do not fit in memory", size, len(members))
        for start in range(0, len(members), size):
            self._fit(members[start : start + size])
            if self.graphs is not None:
                _LOG.info("passes: %s", self.graphs.record())
                self.graphs.clear()
        self._guard.members = ()

    def _fit(self, members: Sequence[Member]) -> None:
        self._guard.members = members
        self._sent, self._stops = [], torch.zeros(0)
        for member in members:
            self.equip(member)
            if member.resume():
                _LOG.info("resuming from step %d of %d", member.step, member.total)
        self._guard.resume(members)
        methods = [member.method for member in members]
        reads, dev = [member.reads() for member in members], [member.dev for member in members]
        before = "the passes before training"
        self._guard.passes(lambda: self._prepare(methods, reads, training=True), before)
        self._guard.passes(lambda: self._prepare(methods, dev), before)
        self._evaluate([member for member in members if member.due_first])
        total = sum(member.total for member in members)
        done = sum(member.step for member in members)
        with meter(total, done, quiet=not self.world.main) as show, stopping.training():
            while active := [member for member in members if member.active]:
                started = time.monotonic()
                tokens = self._step(active)
                seconds = time.monotonic() - started
                for member, count in zip(active, tokens, strict=True):
                    member.seconds += seconds * count / max(1, sum(tokens))
                self.speed.seconds += seconds
                self.speed.tokens += sum(tokens)
                self.speed.steps += len(active)
                self._judge(active)
                done, leader = sum(member.step for member in members), active[0]
                best = leader.best_value if leader.best else None
                if leader.health.losses:  # else none is read yet
                    show(done, leader.health.losses[-1], leader.metric, best, sum(tokens))

    def _step(self, members: Sequence[Member]) -> list[int]:
        """Send a step of each member, then read those that are due; return real tokens."""
        self._guard.members = members
        sums, tokens = self._guard.passes(lambda: self._accumulate(members))
        norms = [member.stepper.clip(member.train.clip) for member in members]
        figures = torch.stack([number.to(self.device) for number in (*sums, *norms)])
        self._sent.append(Sent(members, [member.step for member in members], tokens, figures))
        for member in members:
            member.look_ahead()
        ahead = all(member.stepper.skips_on_device for member in members)
        for member, stop in zip(members, self._stopped(figures), strict=True) if ahead else ():
            self._guard.step(member, partial(member.send, stop))
        asked = stopping.received() or any(member.due or member.late for member in members)
        self.settle(self.lag if ahead and not asked else 0)
        return tokens

    def _stopped(self, figures: Tensor) -> Sequence[Tensor]:
        """Return each member's flag `[]`: 1 from its first step on that is not finite, else 0."""
        sums = figures.view(2, -1).sum(0, dtype=torch.float64)
        if len(self._stops) != len(sums):  # then each step before is read, and none failed
            self._stops = torch.zeros(len(sums), device=self.device)
        return self._stops.add_(sums, alpha=0).ne_(0).unbind()  # 0 times NaN or infinity is NaN

    def settle(self, lag: int = 0) -> None:
        """Read the steps that were sent, except the last `lag`; after a failure, all of them."""
        while self._sent[lag:] or any(m.failed for sent in self._sent[:1] for m in sent.members):
            sent = self._sent.pop(0)
            figures, count = sent.read(), len(sent.members)
            losses = self.world.total(figures[:count])
            rows = zip(sent.members, sent.before, losses, figures[count:], sent.tokens, strict=True)
            for member, before, loss, norm, tokens in rows:
                self._guard.step(member, partial(member.update, before, loss, norm, tokens))

    def _judge(self, active: Sequence[Member]) -> None:
        """Evaluate the members that are due. Save all if one is due; after a signal stop, too."""
        self._evaluate([member for member in active if member.due])
        local = [any(member.late for member in active), stopping.received() or 0]
        late, signal = self.world.decided(local)
        if signal or late or any(member.due for member in active):
            self.settle()
            save(active)
        if signal:
            raise stopping.Stopped(signal, max(member.step for member in active))

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
        if self.world.model_parallel > 1:  # ranks that hold one model read the same rows
            ids = [(item.features.id, item.features.targets) for item in items]
            self.world.check_same(zlib.crc32(repr(ids).encode()), members[0].step + 1)
        losses = [torch.zeros((), device=self.device) for _ in members]
        methods = [member.method for member in members]
        parts = [items]
        if any(method.reading.whole for method in methods):  # its loss needs all rows at once
            self.largest = len(items) * max(item.features.tokens for item in items)
        else:
            parts = self._cut(self._own(items))
        for part in parts:
            groups = by_owner(part)
            keys = {o: members[o].keys([i.slot for i in rows]) for o, rows in groups.items()}
            read = self._batches(methods, groups, keys)
            means = {
                owner: methods[owner].loss(output, read.of[owner]) / max(1, targets[owner])
                for owner, output in self._forward(methods, read).items()
            }
            scaled = [loss * members[owner].stepper.scale for owner, loss in means.items()]
            torch.stack(scaled).sum().backward()  # type: ignore[no-untyped-call]
            for owner, loss in means.items():
                losses[owner] += loss.detach()
        return losses, tokens

    def _evaluate(self, due: Sequence[Member]) -> None:
        if not due:
            return
        started = time.monotonic()
        losses = any(member.by_loss for member in due)
        methods, features = [m.method for m in due], [m.dev for m in due]
        texts = [member.writes for member in due]
        predictions, means = self.evaluate(
            methods, features, losses=losses, texts=texts, probabilities=False
        )
        for index, member in enumerate(due):
            member.judge(predictions[index], means[index] if losses else None)
            member.seconds += (time.monotonic() - started) / len(due)

    def predict(
        self,
        methods: Sequence[Method],
        features: Sequence[Sequence[Features]],
        *,
        probabilities: bool = True,
    ) -> list[list[Prediction]]:
        """Return each method's predictions for its own features, in their order.

        `probabilities` says whether they hold those of all labels.
        """
        predictions = self.evaluate(methods, features, probabilities=probabilities)[0]
        if self.graphs is not None:
            self.graphs.clear()
        return predictions

    def evaluate(
        self,
        methods: Sequence[Method],
        features: Sequence[Sequence[Features]],
        *,
        losses: bool = False,
        texts: Sequence[bool] | None = None,
        probabilities: bool = True,
    ) -> tuple[list[list[Prediction]], list[float]]:
        """Return each method's predictions and, with `losses`, its mean loss over targets.

        `texts` says which methods write where their answer is a text; None: all. Without
        `probabilities` those of all labels are dropped, unless the read-out settles by them.
        """
        started = time.monotonic()
        all_labels = [probabilities or method.readout.settles for method in methods]
        asked = Asked(methods, losses, texts or [True] * len(methods), all_labels)
        answers = self._guard.passes(lambda: self._answers(asked, features), "an evaluation")
        self.speed.evaluating += time.monotonic() - started
        return answers

    @torch.no_grad()
    def _answers(
        self, asked: Asked, features: Sequence[Sequence[Features]]
    ) -> tuple[list[list[Prediction]], list[float]]:
        predictions: list[list[Prediction]] = [[] for _ in asked.methods]
        asked.sums, counts = [0.0] * len(asked.methods), [0] * len(asked.methods)
        for start in range(0, max(map(len, features), default=0), KEPT):
            blocks = [rows[start : start + KEPT] for rows in features]
            for owner, block in enumerate(self._block(asked, blocks)):
                predictions[owner] += block
                counts[owner] += sum(len(f.targets) for f in blocks[owner])
        totals = self.world.total(asked.sums) if asked.losses else []
        return predictions, [total / max(1, n) for total, n in zip(totals, counts, strict=False)]

    def _block(
        self, asked: Asked, features: Sequence[Sequence[Features]]
    ) -> list[list[Prediction]]:
        """Return predictions for examples that are in memory together; add their losses."""
        methods, share = asked.methods, self._own(items_of(features))
        writers = {o for o, method in enumerate(methods) if method.readout.writes}
        waiting = [i for i in share if i.owner not in writers or i.features.targets]
        asked.done = {(i.owner, i.slot): Prediction(i.features.id, None) for i in share}
        while waiting:  # a read-out may need several passes over an example
            rows = [[i.features for i in waiting if i.owner == o] for o in range(len(methods))]
            self._prepare(methods, rows)
            waiting = [i for part in self._cut(waiting) for i in self._read(asked, part)]
        self._write(asked, [i for i in share if i.owner in writers and asked.texts[i.owner]])
        done = self.world.merged(asked.done)
        return [[done[o, i] for i in range(len(share))] for o, share in enumerate(features)]

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
        for method, examples in zip(methods, features, strict=True):
            modules: list[Any] = [method, method.readout]
            for module in modules:
                rows = module.unprepared(examples, training=training)
                for part in track(self._cut(items_of([rows])), "preparing texts"):
                    module.prepare(self._collate([item.features for item in part]))
            method.readout.keep(rows)

    def _read(self, asked: Asked, items: Sequence[Item]) -> list[Item]:
        """Add predictions and losses; return items that need another pass."""
        again, methods = [], asked.methods
        groups = by_owner(items)
        read = self._batches(methods, groups, dict.fromkeys(groups))
        for owner, output in self._forward(methods, read).items():
            decoded = methods[owner].decode(output, read.of[owner])
            if asked.losses:
                asked.sums[owner] += float(methods[owner].loss(output, read.of[owner]))
            for item, result in zip(groups[owner], decoded, strict=True):
                if isinstance(result, Features):
                    again.append(Item(owner, item.slot, result))
                else:
                    if not asked.all_labels[owner]:
                        result = replace(result, probabilities=None)
                    asked.done[owner, item.slot] = result
        return again

    def _write(self, asked: Asked, items: Sequence[Item]) -> None:
        """Add the texts that the backbone writes after the rows of items."""
        methods, done = asked.methods, asked.done
        readouts: list[Any] = [method.readout for method in methods]
        alike: dict[tuple[Decoding, int | None, int], list[Item]] = {}  # what can share passes
        closed = self.backbone.architecture.closed  # it writes rows of one length
        for item in items:
            readout = readouts[item.owner]
            row = replace(item, features=readout.prompt(item.features))
            alone = item.owner if readout.decoding.beams > 1 or closed else None
            length = row.features.tokens if closed else 0
            alike.setdefault((readout.decoding, alone, length), []).append(row)
        for (decoding, *_), rows in alike.items():
            lengths = [i.features.tokens + decoding.max_new_tokens for i in rows]
            for part in track(cut(lengths, self.token_budget, 0), "writing texts"):
                groups = by_owner([rows[index] for index in part])
                shared = [item for group in groups.values() for item in group]
                inputs = [
                    methods[owner].inputs(self._collate([item.features for item in group]))
                    for owner, group in groups.items()
                ]
                seeds = None
                if decoding.temperature:
                    seeds = [readouts[item.owner].seed(item.features.id) for item in shared]
                self.backbone.model.eval()
                joined = join(inputs, self.backbone.embed)
                with self.precise():
                    written = generate(self.backbone, joined, decoding, seeds)
                for item, tokens in zip(shared, written, strict=True):
                    key = item.owner, item.slot
                    done[key] = readouts[item.owner].answer(done[key], item.features, tokens)

    def _cut(self, items: Sequence[Item]) -> list[list[Item]]:
        shape, lengths = self.backbone.shape, [item.features.tokens for item in items]
        if self.backbone.architecture.packed is not None:  # it reads packed tokens
            parts = fill(lengths, [item.owner for item in items], self.token_budget)
            sizes = [sum(lengths[index] for index in part) for part in parts]
        else:
            layers, device = shape.layers + shape.decoder_layers, torch.device(self.device).type
            price = overhead(layers, shape.hidden_size, device)
            parts = cut(lengths, self.token_budget, price)
            sizes = [len(part) * max(lengths[index] for index in part) for part in parts]
        self.largest = max(sizes, default=0)
        return [[items[index] for index in part] for part in parts]

    def _collate(self, features: Sequence[Features], keys: Tensor | None = None) -> Batch:
        return collate(features, keys, torch.device(self.device))

    def _batches(
        self,
        methods: Sequence[Method],
        groups: Mapping[int, Sequence[Item]],
        keys: Mapping[int, Tensor | None],
    ) -> Batches:
        """Return the batches of a pass; those of a GPU come in one copy, of one of few sizes."""
        features = {owner: [item.features for item in rows] for owner, rows in groups.items()}
        taking = [methods[owner] for owner in groups]
        room: Sequence[Room | None] | None = None
        if self.graphs is not None and self.backbone.architecture.packed is not None:
            if all(method.replays for method in taking):
                lengths = [[len(r.ids) for f in rows for r in f.rows] for rows in features.values()]
                room = rooms(lengths, apart=any(method.changes_maps for method in taking))
            else:
                self.graphs.reason = "a method computes its inputs from more than a batch, or tunes"
        fill = room or [None] * len(groups)
        pairs = zip(features.items(), fill, strict=True)
        host = [padded(rows, keys[owner], one) for (owner, rows), one in pairs]
        moved, content = together(host, torch.device(self.device))
        batches = dict(zip(groups, moved, strict=True))
        if room is None or content is None:
            return Batches(batches)
        return Batches({o: unfilled(batch) for o, batch in batches.items()}, batches, content)

    def _forward(self, methods: Sequence[Method], read: Batches) -> dict[int, BackboneOutput]:
        """Return each member's output; on a GPU that of a pass that is replayed, if one can be."""
        if read.content is None or self.graphs is None:
            return self._outputs(methods, read.of)
        fixed = [tensor for batch in read.filled.values() for tensor in fixed_tensors(batch)]

        def forward(content: Tensor) -> Sequence[BackboneOutput]:
            tensors = iter(tensors_of(content, fixed))
            batches = {o: with_tensors(b, tensors) for o, b in read.filled.items()}
            return list(self._outputs(methods, batches).values())

        total = sum(length for batch in read.filled.values() for length in batch.lengths)
        size = total, *read.of, *((tensor.shape, tensor.dtype) for tensor in fixed)
        outputs = self.graphs.run(methods, size, read.content, forward)
        read_by: dict[int, BackboneOutput] = {}  # without the reads that fill the batch
        for (owner, batch), output in zip(read.of.items(), outputs, strict=True):
            count = len(batch.reads.rows)
            filled = any(len(tensor) > count for tensor in output.tensors)
            read_by[owner] = output.map(itemgetter(slice(count))) if filled else output
        return read_by

    def _outputs(
        self, methods: Sequence[Method], batches: Mapping[int, Batch]
    ) -> dict[int, BackboneOutput]:
        """Return each member's output; passes hold rows with keys and a decoder, or without."""
        passes: dict[tuple[bool, bool], dict[int, BackboneInput]] = {}
        for owner, batch in batches.items():
            inputs = methods[owner].inputs(batch)
            passes.setdefault((inputs.keys is None, inputs.decoder is None), {})[owner] = inputs
        outputs: dict[int, BackboneOutput] = {}
        for shared in passes.values():
            joined = join(shared.values(), self.backbone.embed)
            with self.precise():
                output = self.backbone.forward(joined)
            outputs |= zip(shared, split(output, shared.values()), strict=True)
        return {owner: outputs[owner] for owner in batches}

    def precise(self) -> AbstractContextManager[None]:
        """Compute in half precision over fp32 weights: those of a tuned backbone."""
        tuned = next(iter(self.backbone.model.parameters())).dtype is torch.float32
        half = HALVES.get(self.precision)
        return torch.autocast(self.device, half, enabled=half is not None and tuned)


def items_of(features: Sequence[Sequence[Features]]) -> list[Item]:
    """Return the items of all members' features."""
    return [
        Item(owner, slot, f) for owner, rows in enumerate(features) for slot, f in enumerate(rows)
    ]


def by_owner(items: Sequence[Item]) -> dict[int, list[Item]]:
    """Return the items of each member."""
    groups: dict[int, list[Item]] = {}
    for item in sorted(items, key=lambda item: item.owner):
        groups.setdefault(item.owner, []).append(item)
    return groups
