"""Parameters, memory, arithmetic and time of a run, from its configuration alone."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil
from statistics import mean
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from ptrun.method.base import Method
from ptrun.planning.memory import (
    FP32,
    HardwareLayout,
    Memory,
    Parameters,
    Work,
    count,
    memory,
    work,
)
from ptrun.planning.trace import Trace, TracedCase, loss_of, placed, trace
from ptrun.runs.parts import usable
from ptrun.runs.plan import Plan, split_of
from ptrun.task.dataset import Task
from ptrun.training.optim import total_steps
from ptrun.types import Split

# Parameter counts and memory of a run on each engine, from its configuration alone.


@dataclass
class Costs:
    """One run's method on its backbone, both on the meta device.

    Args:
        planned: the run.
        length: tokens of a text.
        counts: its parameters.
        traces: the rows and trace of each traced case, by the case without rows.
        answer: tokens of a written answer; 0 if none is written.
    """

    planned: Plan
    length: int
    counts: Parameters
    traces: dict[TracedCase, tuple[int, Trace]] = field(default_factory=dict)
    answer: int = 0

    @property
    def batch_size(self) -> int:
        """Examples in a step."""
        return self.planned.train.batch_size

    def work(self, layout: HardwareLayout) -> Work:
        """Return the micro-batches of a rank's step."""
        return work(layout, self.batch_size, self.length)

    def memory(self, layout: HardwareLayout) -> Memory:
        """Return the memory of a rank.

        Raises:
            UserError: the heads or the feed-forward width cannot be divided.
        """
        step = self.work(layout)
        found = self._trace(layout, step.rows)
        return memory(self.counts, found, layout, step, self._writing(layout))

    def _writing(self, layout: HardwareLayout) -> float:
        """Return the bytes of texts that are written together: their cache, and two logits each.

        The cache of an encoder-decoder also has the text's tokens, for cross-attention.
        """
        if not self.answer:
            return 0.0
        shape, whole = self.planned.backbone.shape, self.length + self.answer
        rows = max(1, layout.token_budget // whole)
        layers = shape.decoder_layers or shape.layers
        cached = whole * layers * 2 * shape.heads * shape.head_size * layout.width
        vocabulary = self.planned.backbone.config["vocab_size"] * FP32
        return float(rows * (cached / layout.model_parallel + 2 * vocabulary))

    def _trace(self, layout: HardwareLayout, rows: int) -> Trace:
        """Return the trace of `rows` rows; only the first number of rows is traced."""
        low = layout.precision != "fp32"
        autocast = low and self.counts.tunes and not layout.zero
        dtype = torch.bfloat16 if low and not autocast else torch.float32
        narrow = _narrow(self.planned.backbone.config, layout.model_parallel)
        held, on_gpu = layout.quantization, layout.device == "cuda"
        case = TracedCase(
            *(0, self.length, dtype, autocast, layout.checkpointing),
            *(narrow, held, on_gpu, self.answer),
        )
        if case not in self.traces:
            backbone, task = self.planned.backbone, self.planned.task
            made = partial(_on_meta, self.planned, task=task)
            self.traces[case] = rows, trace(made, backbone, replace(case, rows=rows))
        traced, found = self.traces[case]
        return found.scaled(rows / traced)


def costs(planned: Plan, found: "Texts") -> Costs:
    """Return the costs of a run on texts of some length."""
    return Costs(planned, found.length, count(method_of(planned)), answer=found.answer)


def method_of(planned: Plan) -> Method:
    """Return the method on the meta device, without weights and tokenizer."""
    return _on_meta(planned, planned.backbone, task=planned.task)


def _on_meta(planned: Plan, backbone: PretrainedBackbone, *, task: Task) -> Method:
    with torch.device("meta"):
        return planned.method_over(backbone, task)


def _narrow(config: Mapping[str, Any], parallel: int) -> int:
    """Return the factor by which a rank's layers are narrower; only T5's layers are divided.

    Raises:
        UserError: `parallel` does not divide their sizes.
    """
    sizes = {key: config[key] for key in ("num_heads", "d_ff") if key in config}
    if len(sizes) < 2:
        return 1
    for key, size in sizes.items():
        if size % parallel:
            raise UserError(
                f"hardware.model_parallel is {parallel}, but the backbone's {key} is {size}. "
                "Use a divisor, such as 1, 2, 4 or 8."
            )
    return parallel


# The length and number of texts, if data and tokenizer are on this machine.

LENGTH = 256
"""Tokens of a text of unknown length."""

_SOME = 256  # examples whose length is measured


@dataclass(frozen=True)
class Texts:
    """Tokens of the longest text, the origin of that length, and tokens of a mean text.

    `train`, `dev` and `test` are numbers of examples, None if they are not known. `answer` is the
    tokens of the longest answer that is written.
    """

    length: int
    origin: str
    mean: int
    train: int | None
    dev: int | None = None
    test: int | None = None
    answer: int = 0


def texts(planned: Plan, length: int | None) -> Texts:
    """Return the planned length, `length` if given; nothing is downloaded.

    Raises:
        UserError: the length is more than the backbone reads.
    """
    method = method_of(planned)
    room, longest = method.room(), method.readout.longest * method.readout.writes
    name = planned.backbone.name
    if length is not None and length > room:
        raise UserError(f"length is {length}; {name} reads at most {room} tokens here.")
    split = _split(planned)
    counts: tuple[int | None, int | None, int | None] = (None, None, None)
    if split:
        counts = len(split.train), len(split.dev), len(split.test)
    if length is not None:
        return Texts(length, "as requested", length, *counts, longest)
    if split and split.train and planned.backbone.folder is not None:
        some = split.train[:: max(1, len(split.train) // _SOME)][:_SOME]
        features = method.encode(some)
        tokens = [f.tokens for f in features]
        answer = min(longest, max(len(f.targets) for f in features))
        origin = f"the longest of {len(some)} training examples"
        return Texts(max(tokens), origin, ceil(mean(tokens)), *counts, answer)
    assumed = min(room, planned.task.max_tokens or LENGTH)
    return Texts(assumed, "assumed; --length N plans for another", assumed, *counts, longest)


def steps(planned: Plan, found: Texts) -> int | None:
    """Return the optimizer steps of a run; None if the number of examples is unknown."""
    train = planned.train
    if train.max_steps is None and found.train is None:
        return None
    return total_steps(train, ceil((found.train or 1) / train.batch_size))


def _split(planned: Plan) -> Split | None:
    """Return the examples if they are on this machine and no other run makes them."""
    if not _here(planned):
        return None
    try:
        return usable(method_of(planned), split_of(planned)[0])
    except UserError:
        return None  # the run reports the error; a plan needs no data


def _here(planned: Plan) -> bool:
    source = planned.source
    if source is None:
        return planned.task.answer != "several"
    return not planned.of_corpus and ("pocket" in source.origin or source.exists("train"))


# The arithmetic of a run, and its time on a device of known speed that need not be here.

_TERA = 1e12


@dataclass(frozen=True)
class Arithmetic:
    """Floating-point operations of one example: in a training step, and in a prediction."""

    step: int
    answer: int


def arithmetic(planned: Plan, length: int) -> Arithmetic:
    """Return the operations of a run's method on a text of `length` tokens.

    Products of matrices are counted, as torch's `FlopCounterMode` counts them, on the meta device.
    """
    method = method_of(planned)
    batch = placed(
        method, TracedCase(1, length, torch.float32, autocast=False, checkpointing=False)
    )
    with FlopCounterMode(display=False) as counter:
        loss = loss_of(method.backbone.forward(method.inputs(batch)))
        answer = counter.get_total_flops()
        if loss.requires_grad:
            torch.autograd.backward(loss)
        return Arithmetic(counter.get_total_flops(), answer)


def seconds(planned: Plan, found: Texts, tflops: float) -> float | None:
    """Return the seconds of a run at `tflops` TFLOP/s; None if the data are not known.

    Loading, tokenization and everything but products of matrices are left out, so `tflops` is what
    a device sustains in training, not its peak.
    """
    count = steps(planned, found)
    if count is None or found.dev is None or found.test is None:
        return None
    each = arithmetic(planned, found.mean)
    train = planned.train
    every = train.eval_every or -(-(found.train or 1) // train.batch_size)
    answers = found.dev * (count // max(1, every)) + found.test
    total = count * train.batch_size * each.step + answers * each.answer
    return total / (tflops * _TERA)
