"""The bytes of live tensors during a step on the meta device.

Autograd keeps the same tensors on the meta device as on any other, and Python frees them at the
same moment, but nothing is computed or allocated. So no method, read-out or dropout needs its own
formula. Two features differ on the meta device: fused attention is decomposed, and autocast does
not exist. `Fused` and `Cast` replace them.
"""

import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

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
            return _Attention.apply(*args[:3], mask)  # type: ignore[no-untyped-call]
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


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        out = torch.empty_like(query)
        sums = torch.empty(query.shape[:3], dtype=torch.float32, device=query.device)
        if mask is not None and mask.dtype == torch.bool:  # the kernels add it in the query's type
            mask = torch.empty(mask.shape, dtype=query.dtype, device=query.device)
        ctx.save_for_backward(query, key, value, mask, out, sums)
        return out

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> Any:
        query, key, value, *_rest = ctx.saved_tensors
        return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value), None


class Cast(TorchFunctionMode):
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
