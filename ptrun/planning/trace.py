"""The memory of one micro-batch: a step of the method, traced on the meta device.

A deep encoder-decoder is traced with few layers. Each further layer costs the same, so three
shallow models determine the deep one.
"""

import gc
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from copy import copy
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from ptrun.backbone import dropout, kernel
from ptrun.backbone.base import BackboneOutput
from ptrun.backbone.dropout import row_keys
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.backbone.quantization import Quantization
from ptrun.errors import UserError
from ptrun.method.base import Method
from ptrun.readout.base import Batch, Features, TokenRow, collate

# The bytes of live tensors during a step on the meta device.
#
# Autograd keeps the same tensors on the meta device as on any other, and Python frees them at the
# same moment, but nothing is computed or allocated. So no method, read-out or dropout needs its own
# formula. Two features differ on the meta device: fused attention is decomposed, and autocast does
# not exist. `Fused` and `Cast` replace them.

HEAP_BLOCK = 32 * 2**20
"""glibc's `malloc` may put smaller blocks on its heap; it maps and returns larger ones."""

_HALF = {torch.matmul, Tensor.matmul, Tensor.__matmul__, functional.linear, torch.bmm, torch.addmm}
_SAME = {Tensor.__ixor__, Tensor.__imul__}
_MADE = {
    Tensor.__xor__: torch.int32,
    Tensor.__add__: torch.int32,
    Tensor.add: torch.int32,
    Tensor.__rshift__: torch.int32,
    Tensor.__ge__: torch.bool,
}
"""Integer operations of dropout keys: in place, and into new tensors of a type."""
_WHOLE = {functional.softmax, Tensor.softmax, functional.layer_norm, functional.cross_entropy}


_SHARING = {torch.ops.aten._unsafe_view.default}  # a view, though its schema does not say so
_sizes: dict[Any, tuple[tuple[int, ...], tuple[int, ...], torch.dtype]] = {}


@cache
def _fresh(func: Any) -> bool:
    """Return whether an operator returns one new tensor and changes none."""
    schema = func._schema
    if len(schema.returns) != 1 or str(schema.returns[0].type) != "Tensor":
        return False
    return not schema.is_mutable and schema.returns[0].alias_info is None and func not in _SHARING


def _run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the output of an operator; its size is computed once, which takes most of the time."""
    key = _key(func, args, kwargs) if _fresh(func) else None
    if key is None:
        return func(*args, **kwargs)
    if key not in _sizes:
        out = func(*args, **kwargs)
        if out.is_meta:
            _sizes[key] = tuple(out.shape), out.stride(), out.dtype
        return out
    shape, stride, dtype = _sizes[key]
    return torch.empty_strided(shape, stride, dtype=dtype, device="meta")


def _key(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return what decides the size of the output; None if a tensor is not on the meta device."""
    parts: list[Any] = [func]
    for value in (*args, *kwargs.items()):
        for one in value if isinstance(value, tuple | list) else (value,):
            if not isinstance(one, Tensor):
                parts.append((type(one), str(one)))
            elif one.is_meta:
                parts.append((tuple(one.shape), one.stride(), one.dtype))
            else:
                return None
    return tuple(parts)


class Live(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The live bytes of tensors created under this mode: `now`, and the maximum `peak`.

    `small_now` and `small` count only blocks that a C library keeps on its heap.
    """

    def __init__(self, known: Iterable[Tensor] = ()):
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.peak = self.small_now = self.small = 0
        self._known: dict[int, object] = {t.untyped_storage()._cdata: None for t in known}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run the operator and count its outputs."""
        out = _run(func, args, kwargs or {})
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, Tensor) and tensor.is_meta:
                self._count(tensor.untyped_storage())
        return out

    def _count(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._known:
            return
        small = size if size < HEAP_BLOCK else 0
        self.now += size
        self.small_now += small
        self.peak = max(self.peak, self.now)
        self.small = max(self.small, self.small_now)

        def gone(_: object) -> None:
            self.now -= size
            self.small_now -= small
            del self._known[key]

        self._known[key] = weakref.ref(storage, gone)

    def turn(self) -> tuple[int, int]:
        """Return the peaks of a phase, all and small, and start the next phase."""
        found = self.peak, self.small
        self.peak, self.small = self.now, self.small_now
        return found


class Fused(TorchFunctionMode):
    """Attention as in the fused kernels: it keeps its inputs, its output and one sum per query.

    Decomposed attention also keeps scores and weights, `[B, heads, T, S]`. A CPU does so if the
    mask is learned (a tuned T5's position bias), so that case is not replaced.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Replace the library's attention, and skip the checks of integer operations."""
        given = kwargs or {}
        if func in _SAME or func in _MADE:
            return _integers(func, args, given)
        mask: Tensor | None = given.get("attn_mask")
        learned = mask is not None and mask.requires_grad
        if func is functional.scaled_dot_product_attention and not learned:
            return _TracedAttention.apply(*args[:3], mask)  # type: ignore[no-untyped-call]
        if func is torch._grouped_mm:  # without tensors' contents it takes bf16 alone
            return args[0] @ args[1][0]  # which expert reads a token changes no size
        return func(*args, **given)


def _integers(func: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    """Return the result of integer arithmetic without its checks, half of a trace's time."""
    first = args[0]
    if not (isinstance(first, Tensor) and first.is_meta and first.dtype is torch.int32):
        return func(*args, **kwargs)
    if func in _SAME:
        return first
    second = args[1].shape if isinstance(args[1], Tensor) else ()
    shape = torch.broadcast_shapes(first.shape, second)  # type: ignore[no-untyped-call]
    return torch.empty(shape, dtype=_MADE[func], device=first.device)


class _TracedAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        out = query.new_empty(*query.shape[:3], value.shape[3])
        sums = torch.empty(query.shape[:3], dtype=torch.float32, device=query.device)
        if mask is not None and mask.dtype == torch.bool:  # the kernels add it in the query's type
            mask = torch.empty(mask.shape, dtype=query.dtype, device=query.device)
        ctx.save_for_backward(query, key, value, mask, out, sums)
        return out

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> Any:
        query, key, value, *_rest = ctx.saved_tensors
        return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value), None


class Autocast(TorchFunctionMode):
    """Autocast to bf16: products in bf16, sums and norms in fp32, one cast per weight and pass.

    `cast` counts the bytes of the cast weights.
    """

    def __init__(self) -> None:
        super().__init__()
        self.cast = 0
        self._weights: dict[int, Tensor] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Cast the arguments of a function as autocast does."""
        given = kwargs or {}
        if func in _HALF or func is functional.scaled_dot_product_attention:
            args = tuple(self._half(a) for a in args)
            given = {name: self._half(a) for name, a in given.items()}
        elif func in _WHOLE:
            args = tuple(_whole(a) for a in args)
        return func(*args, **given)

    def _half(self, value: Any) -> Any:
        if not isinstance(value, Tensor) or value.dtype is not torch.float32:
            return value
        if not (value.is_leaf and value.requires_grad):
            return value.to(torch.bfloat16)
        if id(value) not in self._weights:
            self._weights[id(value)] = value.to(torch.bfloat16)
            self.cast += 2 * value.numel()
        return self._weights[id(value)]


def _whole(value: Any) -> Any:
    half = isinstance(value, Tensor) and value.dtype is torch.bfloat16
    return value.float() if half else value


Contexts = Callable[[], tuple[AbstractContextManager[None], AbstractContextManager[None]]]


@contextmanager
def entered(modes: Iterable[AbstractContextManager[Any]]) -> Iterator[None]:
    """Enter all modes, and leave them together."""
    with ExitStack() as stack:
        for mode in modes:
            stack.enter_context(mode)
        yield


def recomputed(contexts: Contexts, modes: list[AbstractContextManager[Any]]) -> Contexts:
    """Return checkpoint contexts that recompute under the modes, which the backward pass lacks."""

    def both() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        first, again = contexts()
        return first, entered([again, *modes])

    return both


DECODER_TOKENS = 3
"""Tokens that a decoder reads for a one-word target: its start, a sentinel, the word."""

_DEEP = 12  # more layers of both stacks are traced with shallow models
_PHASES = 5


@dataclass(frozen=True)
class TracedCase:
    """The traced rows of `length` tokens, and their precision.

    `autocast`: a tuned backbone with fp32 weights computes in bf16. `narrow`: the number by which
    model parallelism divides the heads and the feed-forward width. `kernel`: as on CUDA, attention
    keeps no scores, and dropout computes all cells at once. `answer`: tokens of a written answer.
    """

    rows: int
    length: int
    dtype: torch.dtype
    autocast: bool
    checkpointing: bool
    narrow: int = 1
    quantization: Quantization = "none"
    kernel: bool = False
    answer: int = 0


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


def trace(made: Made, backbone: PretrainedBackbone, case: TracedCase) -> Trace:
    """Return the trace of a case; `made` returns the method over a backbone, on the meta device.

    Raises:
        UserError: the method does not suit this backbone.
    """
    shape = backbone.shape
    if shape.decoder_layers and shape.layers + shape.decoder_layers > _DEEP:
        try:
            return _trace(_deep(made, backbone, case))
        except UserError:  # such as layers that a shallow model lacks
            pass
    return _trace(_follow(made(_like(backbone, case)), case))


def _trace(found: list[float]) -> Trace:
    kept, logits, fixed, *phases = found
    return Trace(kept, max(phases[::2]), logits, fixed, max(phases[1::2]))


def _deep(made: Made, backbone: PretrainedBackbone, case: TracedCase) -> list[float]:
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
    backbone: PretrainedBackbone, case: TracedCase, depth: tuple[int, int] | None = None
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


def _follow(method: Method, case: TracedCase) -> list[float]:
    """Return kept, logits, casts, and the peaks (all blocks, small blocks) of five phases.

    The phases end after the encoder's forward pass, the forward pass, the backward passes of the
    decoder and of the last encoder layer, and the step. Each peak is linear in the layers.
    """
    backbone = method.backbone
    batch = placed(method, case)
    known = [*backbone.model.parameters(), *backbone.model.buffers(), *method.parameters()]
    cast = Autocast()
    modes: list[Any] = [Fused(), cast] if case.autocast else [Fused()]
    if case.checkpointing:
        _checkpoint(backbone, modes)
    gc.disable()  # thousands of tensors; reference counts free each of them
    try:
        tensors = [*known, *(p.grad for p in known if p.grad is not None)]
        device = "cuda" if case.kernel else "cpu"
        with kernel.use(case.kernel), dropout.planned_for(device), Live(tensors) as live:
            return _step(method, batch, live, modes, cast)
    finally:
        gc.enable()


def placed(method: Method, case: TracedCase) -> Batch:
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


def _step(
    method: Method, batch: Batch, live: Live, modes: list[Any], cast: Autocast
) -> list[float]:
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


def _rows(method: Method, case: TracedCase) -> list[Features]:
    """Return equal rows without a tokenizer: ids and positions do not matter here."""
    pattern, architecture = method.readout.pattern, method.backbone.architecture
    decodes = architecture.has_decoder and method.readout.reads_decoder
    decodes = decodes or (architecture.has_blank and pattern is not None)
    softs = list(range(pattern.softs)) if pattern is not None and method.soft else []
    decoder = case.answer if method.readout.writes else DECODER_TOKENS
    reads = [0]
    if decodes:
        reads = list(range(decoder if method.readout.writes else decoder - 1))
    elif method.readout.writes and not method.readout.everywhere:
        reads = list(range(max(0, case.length - case.answer), case.length))
    elif method.readout.everywhere or method.readout.pooler == "mean":
        reads = list(range(case.length))
    row = TokenRow([0] * case.length, None, reads, softs, [0] * decoder if decodes else None)
    return [Features("", [row], [0])] * case.rows
