"""What CUDA refuses, what makes the host wait, and what has no fixed order there."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tests.cuda.events import CAPTURED, EVENTS, LIBRARY, ORDER, UPLOAD, WAIT

aten = torch.ops.aten


class CudaRefuses(RuntimeError):
    """What CUDA raises, or does worse without a word."""


@dataclass(frozen=True)
class Call:
    """An op with its arguments: all tensors, the disguised ones, the device asked for, and whether
    the result is on the device."""

    func: Any
    args: Any
    kwargs: dict[str, Any]
    tensors: list[Tensor]
    own: list[Any]
    asked: torch.device | None
    there: bool


def check(call: Call) -> None:
    """Refuse what CUDA refuses, and count what is to be counted."""
    _fail()
    for rule in (_captures, _generator, _transfers, _waits, _types, _orders, _devices):
        rule(call)


def _captures(call: Call) -> None:
    """Refuse in a capture a copy from the host: replays would read what is there then."""
    others = [t for t in call.tensors if not t.is_cuda and not t.is_meta]
    if EVENTS.part == CAPTURED and call.there and any(t.dim() and t.numel() for t in others):
        raise CudaRefuses(f"{call.func}: memory of the host is read in a capture")


def _fail() -> None:
    """Raise the error that a test asked for in this part of the run."""
    if text := EVENTS.fail.get(EVENTS.part):
        kind = torch.OutOfMemoryError if "out of memory" in text else RuntimeError
        raise kind(text)


def _generator(call: Call) -> None:
    generator = call.kwargs.get("generator")
    if call.there and generator is not None and generator.device.type != "cuda":
        raise CudaRefuses(f"{call.func}: expected a 'cuda' generator, found 'cpu'")


def _transfers(call: Call) -> None:
    """Count copies between the host and the device."""
    if call.func is aten._to_copy.default:
        to_host = call.own and call.asked is not None and call.asked.type == "cpu"
        if to_host and not call.kwargs.get("non_blocking"):
            EVENTS.note(WAIT, "copy to the host")
        if not call.own and call.there and not getattr(call.args[0], "is_pinned_here", False):
            EVENTS.note(UPLOAD, "to")
    if call.func is aten.copy_.default and len(call.own) == 1 and len(call.tensors) == 2:
        EVENTS.note(UPLOAD if call.there else WAIT, "copy_")


_SIZED_BY_VALUES = {
    aten.nonzero.default,
    aten.masked_select.default,
    aten._unique2.default,
    aten.unique_dim.default,
    aten.equal.default,
    aten.bincount.default,
}
_INDEXED = {
    aten.index.Tensor,
    aten._unsafe_index.Tensor,
    aten.index_put.default,
    aten.index_put_.default,
    aten._index_put_impl_.default,
}


def _waits(call: Call) -> None:
    """Count ops whose result, or whose size, the host has to know."""
    func, own = call.func, call.own
    if not own:
        return
    if func is aten._local_scalar_dense.default:
        EVENTS.note(WAIT, "item")
    elif func in _SIZED_BY_VALUES:
        EVENTS.note(WAIT, str(func))
    elif func is aten.repeat_interleave.Tensor and call.kwargs.get("output_size") is None:
        EVENTS.note(WAIT, "repeat_interleave without output_size")
    elif func in _INDEXED and any(i is not None and i.dtype is torch.bool for i in call.args[1]):
        EVENTS.note(WAIT, "index by a bool mask")
    elif func in _INDEXED and any(i is not None and not i.is_cuda for i in call.args[1]):
        EVENTS.note(WAIT, "index on the CPU")


_PRODUCTS = {
    aten.mm.default,
    aten.bmm.default,
    aten.addmm.default,
    aten.baddbmm.default,
    aten.mv.default,
    aten.dot.default,
}


def _types(call: Call) -> None:
    if call.func in _PRODUCTS and any(not t.dtype.is_floating_point for t in call.own):
        raise CudaRefuses(f"{call.func}: CUDA has no product of {call.own[0].dtype}")


_ADDED = {
    aten.index_add.default,
    aten.index_add_.default,
    aten.scatter_add.default,
    aten.scatter_add_.default,
    aten.scatter_reduce.two,
    aten.scatter_reduce_.two,
}
_PUT = _INDEXED - {aten.index.Tensor, aten._unsafe_index.Tensor}
_COPIED = {
    aten.index_copy.default,
    aten.index_copy_.default,
    aten.scatter.src,
    aten.scatter_.src,
}
_NEVER = {aten.put_.default, aten.histc.default, aten.kthvalue.default, aten._embedding_bag.default}
"""Ops of torch's list that no run needs."""


def _orders(call: Call) -> None:
    """Count ops of torch's list of non-deterministic ones whose result depends on an order.

    The sum of two numbers does not. `index_put` that accumulates sorts on CUDA, so it is fixed.
    """
    func, own = call.func, call.own
    if not own or (not own[0].dtype.is_floating_point and func not in _NEVER):
        return
    if func in _NEVER or func in (aten.cumsum.default, aten.cumsum_.default):
        EVENTS.note(ORDER, str(func))
    elif func in _ADDED and _most(call.args[1], call.args[2]) > 2:
        EVENTS.note(ORDER, f"{func}: a sum of more than two terms")
    twice = func in _COPIED and _most(call.args[1], call.args[2]) > 1
    if twice or (func in _PUT and not (len(call.args) > 3 and call.args[3]) and _twice(call)):
        EVENTS.note(ORDER, f"{func}: a cell is written twice")


def _most(dim: int, index: Tensor) -> int:
    """Return the most equal entries of a line along `dim`: the most terms of a cell."""
    index = getattr(index, "held", index)
    if not index.numel():
        return 0
    lines = index[None] if index.dim() < 2 else index.movedim(dim, -1).flatten(0, -2)
    return max(int(line.bincount().max()) for line in lines)


def _twice(call: Call) -> bool:
    """Return whether an assignment by index writes a cell twice."""
    indices = [getattr(i, "held", i) for i in call.args[1] if i is not None]
    if any(i.dtype is torch.bool for i in indices):
        return False
    cells = torch.stack([i.flatten() for i in torch.broadcast_tensors(*indices)], dim=1)
    return len(cells.unique(dim=0)) < len(cells)


_BETWEEN = {aten.copy_.default, aten._to_copy.default}


def _devices(call: Call) -> None:
    """Refuse an op on tensors of two devices, but numbers in element-wise ops and CPU indices."""
    others = [t for t in call.tensors if not t.is_cuda and not t.is_meta]
    if not call.own or not others or call.func in _BETWEEN:
        return
    if call.func in _INDEXED:
        values = (call.args[0], *call.args[2:3])
        others = [t for t in values if isinstance(t, Tensor) and not t.is_cuda and t.dim()]
    elif torch.Tag.pointwise in call.func.tags or call.func in (
        aten.fill_.Tensor,
        aten.masked_fill.Tensor,
    ):
        others = [t for t in others if t.dim()]
    if others:
        shapes = ", ".join(str(list(t.shape)) for t in others[:4])
        raise CudaRefuses(
            f"{call.func}: expected all tensors to be on the same device, found cuda:0 and cpu "
            f"({shapes})"
        )


def _lstm_cell(
    inputs: Tensor, hidden: Tensor, cell: Tensor, b1: Tensor | None = None, b2: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return what CUDA's cell of an LSTM returns; a CPU has none."""
    if torch.backends.cudnn.enabled:  # then cuDNN computes it, in an order of its own
        EVENTS.note(LIBRARY, "LSTM by cuDNN")
    gates = sum((b for b in (b1, b2) if b is not None), inputs + hidden)
    enter, forget, new, out = gates.chunk(4, dim=1)
    enter, forget, new, out = enter.sigmoid(), forget.sigmoid(), new.tanh(), out.sigmoid()
    after = forget * cell + enter * new
    return out * after.tanh(), after, torch.cat([enter, forget, new, out], dim=1)


def _lstm_cell_backward(
    slope: Tensor | None,
    slope_cell: Tensor | None,
    before: Tensor,
    after: Tensor,
    workspace: Tensor,
    has_bias: bool,
) -> tuple[Tensor, Tensor, Tensor | None]:
    enter, forget, new, out = workspace.chunk(4, dim=1)
    squashed = after.tanh()
    slope = torch.zeros_like(after) if slope is None else slope
    total = slope * out * (1 - squashed**2)
    total = total if slope_cell is None else total + slope_cell
    parts = [
        total * new * enter * (1 - enter),
        total * before * forget * (1 - forget),
        total * enter * (1 - new**2),
        slope * squashed * out * (1 - out),
    ]
    gates = torch.cat(parts, dim=1)
    return gates, total * forget, gates.sum(dim=0) if has_bias else None


def _softmax(x: Tensor, dim: int, to_float: bool) -> Tensor:
    """Return a softmax; CUDA alone converts from half precision on the way."""
    return aten._softmax.default(x.float() if to_float else x, dim, False)


def _softmax_backward(slope: Tensor, output: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    found: Tensor = aten._softmax_backward_data.default(slope, output, dim, output.dtype)
    return found.to(dtype)


ON_CPU: dict[Any, Callable[..., Any]] = {
    aten._softmax.default: _softmax,
    aten._softmax_backward_data.default: _softmax_backward,
    aten._thnn_fused_lstm_cell.default: _lstm_cell,
    aten._thnn_fused_lstm_cell_backward_impl.default: _lstm_cell_backward,
}
"""Ops that CUDA alone has, as the CPU computes them."""
