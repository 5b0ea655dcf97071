"""How many bytes of tensors are alive, followed through a step on the meta device.

Autograd keeps there what it keeps anywhere, and Python lets go of it at the same moment; nothing
is computed and nothing is allocated. So what a method, a read-out or a dropout adds needs no
formula of its own. Two things are not as they run: the fused attention, which meta spells out, and
autocast, which knows no meta; `Fused` and `Cast` stand in for them.
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
"""Below this glibc's `malloc` may put a block on its heap; larger ones it maps and gives back."""

_HALF = {torch.matmul, Tensor.matmul, Tensor.__matmul__, functional.linear, torch.bmm, torch.addmm}
_SAME = {Tensor.__ixor__, Tensor.__imul__}
_MADE = {
    Tensor.__xor__: torch.int32,
    Tensor.__add__: torch.int32,
    Tensor.add: torch.int32,
    Tensor.__rshift__: torch.int32,
    Tensor.__ge__: torch.bool,
}
"""What scrambles the integers of dropout keys: in place, and into new tensors of a type."""
_WHOLE = {functional.softmax, Tensor.softmax, functional.layer_norm, functional.cross_entropy}


_SHARING = {torch.ops.aten._unsafe_view.default}  # a view, though its schema does not say so
_sizes: dict[Any, tuple[tuple[int, ...], tuple[int, ...], torch.dtype]] = {}


@cache
def _fresh(func: Any) -> bool:
    """Return whether an operator puts out one new tensor, and changes none."""
    schema = func._schema
    single = len(schema.returns) == 1 and str(schema.returns[0].type) == "Tensor"
    plain = not schema.is_mutable and schema.returns[0].alias_info is None if single else False
    return plain and func not in _SHARING


def _done(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return what an operator makes; its size is asked for once, which takes most of the time."""
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
    """Return what decides the size of the outcome; None if a tensor is a real one."""
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
    """Bytes of the tensors made under it and still alive: `now`, and the most so far, `peak`.

    `small_now` and `small` are the same of blocks that a C library keeps on its heap.
    """

    def __init__(self, known: Iterable[Tensor] = ()):
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.peak = self.small_now = self.small = 0
        self._known: dict[int, object] = {t.untyped_storage()._cdata: None for t in known}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Do what was asked, and count what came out."""
        out = _done(func, args, kwargs or {})
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
        """Return the peaks of a phase, all and small, and begin the next."""
        found = self.peak, self.small
        self.peak, self.small = self.now, self.small_now
        return found


class Fused(TorchFunctionMode):
    """Attention as the fused kernels have it: kept are its inputs, output and one sum a query.

    Without it `scores` and weights, `[B, heads, T, S]`, would be kept. That happens on a CPU where
    the mask learns (a tuned T5's position bias), and is left as it is.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Put the stand-in in the place of the library's function."""
        given = kwargs or {}
        if func in _SAME or func in _MADE:
            return _integers(func, args, given)
        mask = given.get("attn_mask")
        if func is functional.scaled_dot_product_attention and not _learns(mask):
            return _Attention.apply(*args[:3], mask)  # type: ignore[no-untyped-call]
        return func(*args, **given)


def _learns(mask: Tensor | None) -> bool:
    return mask is not None and mask.requires_grad


def _integers(func: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    """Make what integer arithmetic would, without its checks, half of the time of a trace."""
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
        if mask is not None and mask.dtype == torch.bool:  # the kernels add it, in its own type
            mask = torch.empty(mask.shape, dtype=query.dtype, device=query.device)
        ctx.save_for_backward(query, key, value, mask, out, sums)
        return out

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> Any:
        query, key, value, *_rest = ctx.saved_tensors
        return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value), None


class Cast(TorchFunctionMode):
    """Autocast to bf16: products in bf16, each weight cast once a pass, sums and norms in fp32.

    `cast` counts the bytes of the weights' casts.
    """

    def __init__(self) -> None:
        super().__init__()
        self.cast = 0
        self._weights: dict[int, Tensor] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Cast what goes into a function, as autocast would."""
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
    low = isinstance(value, Tensor) and value.dtype is torch.bfloat16
    return value.float() if low else value


Contexts = Callable[[], tuple[AbstractContextManager[None], AbstractContextManager[None]]]


@contextmanager
def entered(modes: Iterable[AbstractContextManager[Any]]) -> Iterator[None]:
    """Enter modes together, and leave them."""
    with ExitStack() as stack:
        for mode in modes:
            stack.enter_context(mode)
        yield


def recomputed(contexts: Contexts, modes: list[AbstractContextManager[Any]]) -> Contexts:
    """Return contexts of a checkpoint whose recomputation is under the modes again.

    The backward does not hand them on.
    """

    def both() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        first, again = contexts()
        return first, entered([again, *modes])

    return both
