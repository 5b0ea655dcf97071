"""Tensors that claim to be on a CUDA device and hold real numbers in a CPU tensor.

An op on them runs on the CPU after `tests.cuda.rules` has checked that CUDA would run it too. So
a whole run computes what it computes on a CPU, and breaks where it would break on a GPU.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.cuda import graphs, rules
from tests.cuda.events import EVENTS, WAIT

aten = torch.ops.aten
DEVICE = torch.device("cuda:0")
COPIES: list[tuple[torch.Tensor, torch.Tensor]] = []
"""Copies to the host that nobody waited for, and what they will hold."""


class Disguised(torch.Tensor):
    """A tensor on `cuda:0`; `held` is the CPU tensor that holds its numbers."""

    held: torch.Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, real: torch.Tensor) -> "Disguised":
        layout = {"strides": real.stride(), "storage_offset": real.storage_offset()}
        own = torch.Tensor._make_wrapper_subclass(
            cls, real.size(), dtype=real.dtype, device=DEVICE, requires_grad=False, **layout
        )
        own.held = real
        return own

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return dispatch(func, args, kwargs or {})

    def tolist(self) -> Any:
        EVENTS.note(WAIT, "tolist")
        return self.held.tolist()

    def numpy(self, *_: Any, **__: Any) -> Any:
        raise TypeError(
            "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the "
            "tensor to host memory first."
        )

    __array__ = numpy

    @property
    def data(self) -> torch.Tensor:
        return self.detach()

    @data.setter
    def data(self, value: "Disguised") -> None:
        """Let the tensor share the numbers of another, as DeepSpeed does with its flat buffers."""
        assert value.shape == self.shape, "a disguised tensor keeps its shape"
        self.held = value.held

    def data_ptr(self) -> int:
        return self.held.data_ptr()

    def __reduce_ex__(self, protocol: int) -> Any:
        raise rules.CudaRefuses("a tensor of the device is pickled")

    def __deepcopy__(self, memo: dict[int, Any]) -> "Disguised":
        with torch.no_grad():
            copied = self.detach().clone().requires_grad_(self.requires_grad)
        memo[id(self)] = copied
        return copied


class Device(TorchDispatchMode):
    """Lets `device="cuda"` make disguised tensors, while it is entered."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return dispatch(func, args, kwargs or {})


def real(value: Any) -> Any:
    """Return the CPU tensor of a disguised one, and anything else as it is."""
    return value.held if isinstance(value, Disguised) else value


def dispatch(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Run an op of torch on tensors of which some may be disguised."""
    tensors = list(_tensors(args))
    tensors += _tensors(kwargs.values())
    own = [x for x in tensors if isinstance(x, Disguised)]
    asked = None if kwargs.get("device") is None else torch.device(kwargs["device"])
    there = asked.type == "cuda" if asked is not None else bool(own)
    if func is aten.copy_.default:
        there = isinstance(args[0], Disguised)
    if there or own:
        rules.check(rules.Call(func, args, kwargs, tensors, own, asked, there))
    if asked is not None and asked.type == "cuda":
        kwargs = {**kwargs, "device": torch.device("cpu")}
    if kwargs.get("pin_memory"):
        return _pinned(func(*args, **{**kwargs, "pin_memory": False}))
    call = rules.ON_CPU.get(func, func) if own else func
    held = _each(real, args), {key: _each(real, v) for key, v in kwargs.items()}
    result = call(*held[0], **held[1])
    if there:
        graphs.record(func, call, *held, result)
    if func is aten._to_copy.default and own and not there and kwargs.get("non_blocking"):
        COPIES.append((result, result.clone()))
        return result.fill_(-1)
    if not there or func is aten._local_scalar_dense.default:
        return result
    known = {id(x.held): x for x in own}
    return _each(lambda x: _dressed(x, known, func), result)


def _pinned(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of the host whose copies to the device need no wait."""
    tensor.is_pinned_here = True  # type: ignore[attr-defined]
    return tensor


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors among arguments; lists of them are the only nesting of an op."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _each(function: Callable[[Any], Any], value: Any) -> Any:
    """Return a value with a function called on what it holds; pytrees of torch are slower."""
    if isinstance(value, list | tuple):
        return type(value)([_each(function, one) for one in value])
    return function(value)


def _dressed(value: Any, known: dict[int, Disguised], func: Any) -> Any:
    """Return a result in disguise: the same object for a tensor that was changed in place."""
    if not isinstance(value, torch.Tensor) or isinstance(value, Disguised) or value.is_meta:
        return value
    before = known.get(id(value))
    if before is None:
        return Disguised(value)
    if (before.shape, before.stride()) != (value.shape, value.stride()):
        raise NotImplementedError(f"{func} changes the shape of a disguised tensor in place")
    return before
