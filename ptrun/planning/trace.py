"""The memory of one micro-batch: a step of the method, traced on the meta device.

A deep encoder-decoder is traced with few layers. Each further layer costs the same, so three
shallow models determine the deep one.
"""

import gc
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ptrun.backbone.base import BackboneOutput
from ptrun.backbone.dropout import row_keys
from ptrun.backbone.kernel import choice
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.backbone.quantization.formats import Quantization
from ptrun.config.build import Component
from ptrun.errors import UserError
from ptrun.method.base import Method
from ptrun.planning.live import Cast, Fused, Live, entered, recomputed
from ptrun.readout.base import Batch, Features, Row, collate
from ptrun.task.base import Task

DECODER_TOKENS = 3
"""Tokens that a decoder reads for a one-word target: its start, a sentinel, the word."""

_DEEP = 12  # more layers of both stacks are traced with shallow models
_PHASES = 5


@dataclass(frozen=True)
class Case:
    """The traced rows of `length` tokens, and their precision.

    `autocast`: a tuned backbone with fp32 weights computes in bf16. `narrow`: the number by which
    model parallelism divides the heads and the feed-forward width. `kernel`: attention keeps no
    scores, as on CUDA.
    """

    rows: int
    length: int
    dtype: torch.dtype
    autocast: bool
    checkpointing: bool
    narrow: int = 1
    quantization: Quantization = "none"
    kernel: bool = False


@dataclass(frozen=True)
class Trace:
    """Bytes without weights, gradients and optimizer state.

    Args:
        kept: bytes when the backward pass starts.
        peak: the most bytes at once.
        logits: output of the output head, part of `kept`.
        fixed: casts of weights, independent of the batch; part of `kept` and `peak`.
        small: the most bytes at once in blocks under `live.HEAP_BLOCK`.
    """

    kept: float
    peak: float
    logits: float
    fixed: float
    small: float

    def scaled(self, share: float) -> "Trace":
        """Return the trace of a batch with `share` times the rows."""
        kept, peak = (self.fixed + (n - self.fixed) * share for n in (self.kept, self.peak))
        return Trace(kept, peak, self.logits * share, self.fixed, self.small * share)


Made = Callable[[PretrainedBackbone], Method]


def trace(component: Component, backbone: PretrainedBackbone, task: Task, case: Case) -> Trace:
    """Return the trace of a case; `component` is the method's.

    Raises:
        UserError: the method does not suit this backbone.
    """
    made = partial(_made, component, task)
    shape = backbone.shape
    if shape.decoder_layers and shape.layers + shape.decoder_layers > _DEEP:
        try:
            return _trace(_deep(made, backbone, case))
        except UserError:  # such as layers that a shallow model lacks
            pass
    return _trace(_follow(made(_like(backbone, case)), case))


def _made(component: Component, task: Task, backbone: PretrainedBackbone) -> Method:
    with torch.device("meta"):
        method: Method = component.build(backbone, task)
    return method


def _trace(found: list[float]) -> Trace:
    kept, logits, fixed, *phases = found
    return Trace(kept, max(phases[::2]), logits, fixed, max(phases[1::2]))


def _deep(made: Made, backbone: PretrainedBackbone, case: Case) -> list[float]:
    """Return the figures of the full depth from those of (2, 2), (3, 2) and (2, 3) layers.

    Only the first layer differs: it computes the position bias of all layers.
    """
    shape = backbone.shape
    one, wide, high = (
        _follow(made(_like(backbone, case, depth)), case) for depth in ((2, 2), (3, 2), (2, 3))
    )
    more, over = shape.layers - 2, shape.decoder_layers - 2
    return [a + more * (b - a) + over * (c - a) for a, b, c in zip(one, wide, high, strict=True)]


def _like(
    backbone: PretrainedBackbone, case: Case, depth: tuple[int, int] | None = None
) -> PretrainedBackbone:
    """Return the backbone of one rank, with `depth` layers, on the meta device."""
    other = copy(backbone)
    for derived in ("model", "shape"):
        other.__dict__.pop(derived, None)
    config = dict(backbone.config)
    if backbone.architecture.has_decoder:
        config["num_heads"] //= case.narrow
        config["d_ff"] //= case.narrow
        if depth:
            config |= dict(zip(("num_layers", "num_decoder_layers"), depth, strict=True))
    other.config, other.kept = config, {}
    other.quantize(case.quantization)
    return other


def _follow(method: Method, case: Case) -> list[float]:
    """Return kept, logits, casts, and the peaks (all blocks, small blocks) of five phases.

    The phases end after the encoder's forward pass, the forward pass, the backward passes of the
    decoder and of the last encoder layer, and the step. Each peak is linear in the layers.
    """
    backbone = method.backbone
    batch = placed(method, case)
    known = [*backbone.model.parameters(), *backbone.model.buffers(), *method.parameters()]
    cast = Cast()
    modes: list[Any] = [Fused(), cast] if case.autocast else [Fused()]
    if case.checkpointing:
        _checkpoint(backbone, modes)
    gc.disable()  # thousands of tensors; reference counts free each of them
    try:
        tensors = [*known, *(p.grad for p in known if p.grad is not None)]
        with choice.use(case.kernel), Live(tensors) as live:
            return _step(method, batch, live, modes, cast)
    finally:
        gc.enable()


def placed(method: Method, case: Case) -> Batch:
    """Return the rows of a case, for a method that is now ready for a step.

    Its learned parameters have gradients, which are counted elsewhere.
    """
    method.backbone.model.to(case.dtype)
    method.placed()
    for parameter in method.learned().values():
        parameter.requires_grad_(True)
        parameter.grad = torch.empty_like(parameter)
    return collate(_rows(method, case), row_keys(1, 1, range(case.rows)), torch.device("meta"))


def _checkpoint(backbone: PretrainedBackbone, modes: list[Any]) -> None:
    from transformers.utils import logging

    logging.set_verbosity_error()  # it warns that an unused cache is off
    backbone.checkpoint(True)
    contexts = recomputed(backbone.injection.replay, modes)
    backbone.model.activation_checkpointing_enable({"use_reentrant": False, "context_fn": contexts})


def _step(method: Method, batch: Batch, live: Live, modes: list[Any], cast: Cast) -> list[float]:
    turns: list[tuple[int, int]] = []
    handles = _phases(method.backbone, lambda: turns.append(live.turn()))
    with entered(modes):
        output = method.backbone.forward(method.inputs(batch))
        loss = loss_of(output)
    kept = live.now
    turns.append(live.turn())
    logits = 0 if output.logits is None else output.logits.numel() * 4
    del output
    if loss.requires_grad:
        torch.autograd.backward(loss)
    for handle in handles:
        handle.remove()
    turns = [*turns, live.turn()]
    turns += [(0, 0)] * (_PHASES - len(turns))
    return [float(n) for n in (kept, logits, cast.cast, *(x for turn in turns for x in turn))]


def _phases(backbone: PretrainedBackbone, turn: Callable[[], Any]) -> list[Any]:
    """Call `turn` after the encoder's forward pass and the backward passes of `_follow`."""
    if not backbone.architecture.has_decoder:
        return []
    encoder = backbone.model.encoder

    def on_gradient(tensor: Tensor) -> None:
        if tensor.requires_grad:
            tensor.register_hook(lambda _: turn())  # type: ignore[no-untyped-call]

    def read(_module: object, _given: object, out: Any) -> None:
        turn()
        on_gradient(out.last_hidden_state)

    return [
        encoder.register_forward_hook(read),
        encoder.block[-1].register_forward_pre_hook(lambda _m, inputs: on_gradient(inputs[0])),
    ]


def loss_of(output: BackboneOutput) -> Tensor:
    """Return a loss like those of the read-outs: a softmax over each output, in fp32."""
    outputs = [t for t in (output.hidden, output.pooled, output.logits) if t is not None]
    losses = [functional.log_softmax(t.float(), dim=-1)[:, 0].sum() for t in outputs]
    return torch.stack(losses).sum()


def _rows(method: Method, case: Case) -> list[Features]:
    """Return equal rows without a tokenizer: ids and positions do not matter here."""
    pattern, architecture = method.readout.pattern, method.backbone.architecture
    decodes = architecture.has_decoder and method.readout.reads_decoder
    decodes = decodes or (architecture.has_blank and pattern is not None)
    softs = list(range(pattern.softs)) if pattern is not None and method.soft else []
    reads = [0]
    if decodes:
        reads = list(range(DECODER_TOKENS - 1))
    elif method.readout.everywhere or method.readout.pooler == "mean":
        reads = list(range(case.length))
    row = Row([0] * case.length, None, reads, softs, [0] * DECODER_TOKENS if decodes else None)
    return [Features("", [row], [0])] * case.rows
