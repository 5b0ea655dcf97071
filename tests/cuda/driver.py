"""Let `torch.cuda` and what asks it speak of the disguised device."""

import logging
import os
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import torch

from tests.cuda import rules
from tests.cuda.disguise import COPIES, DEVICE, Disguised
from tests.cuda.events import EVENTS, WAIT

CAPABILITY = (9, 0)
MEMORY = 80 * 2**30
DEVICES = int(os.environ.get("PTRUN_TEST_GPUS", "1"))
_PROPERTIES = SimpleNamespace(name="Disguised GPU", total_memory=MEMORY, uuid="GPU-0")
vars(_PROPERTIES).update(zip(("major", "minor"), CAPABILITY, strict=True))
vars(_PROPERTIES).update(multi_processor_count=132, warp_size=32, is_integrated=0, gcnArchName="")
vars(_PROPERTIES).update(max_threads_per_multi_processor=2048, regs_per_multiprocessor=65536)
vars(_PROPERTIES).update(shared_memory_per_block_optin=232448)


class _Nothing:
    """A stream or an event: all of its methods return 0."""

    device, cuda_stream, stream_id, device_index, device_type = DEVICE, 0, 0, 0, 0

    def __init__(self, *_: Any, **__: Any):
        pass

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: 0

    def __enter__(self) -> "_Nothing":
        return self

    def __exit__(self, *_: Any) -> None:
        return None


class _Event(_Nothing):
    """An event that the copies to the host before it are behind."""

    def record(self, *_: Any) -> None:
        self.copies, COPIES[:] = [*COPIES], []

    def synchronize(self) -> None:
        EVENTS.note(WAIT, "event")
        for tensor, numbers in self.copies:
            tensor.copy_(numbers)


def _set_device(device: Any) -> None:
    index = torch.device("cuda", device).index if isinstance(device, int) else device
    if isinstance(index, int) and index >= DEVICES:
        raise RuntimeError("CUDA error: invalid device ordinal")


def install() -> None:
    """Patch `torch.cuda`, NCCL (gloo in its place), pinned memory and fused attention."""
    logging.getLogger("torch").setLevel(logging.ERROR)
    for name, value in _answers().items():
        setattr(torch.cuda, name, value)
    torch._C._cuda_getCurrentRawStream = lambda device: 0  # type: ignore[attr-defined]
    torch.cuda.nccl.version = lambda: (2, 27, 0)
    torch.Tensor.pin_memory = _pinned  # type: ignore[method-assign,assignment]
    _patch_process_groups()
    _patch_attention()


def _answers() -> dict[str, Any]:
    """Return what `torch.cuda` says of the device."""
    nothing = (
        *("_lazy_init", "empty_cache", "synchronize", "ipc_collect", "reset_peak_memory_stats"),
        *("manual_seed", "manual_seed_all", "set_rng_state"),
    )
    zero = (
        *("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved"),
        "current_device",
    )
    return {
        **{name: _constant(None) for name in nothing},
        **{name: _constant(0) for name in zero},
        "set_device": _set_device,
        "is_available": _constant(True),
        "is_initialized": _constant(True),
        "device_count": _constant(DEVICES),
        "get_device_name": _constant(_PROPERTIES.name),
        "get_device_properties": _constant(_PROPERTIES),
        "get_device_capability": _constant(CAPABILITY),
        "is_bf16_supported": lambda including_emulation=True: True,
        "mem_get_info": lambda *_: (MEMORY, MEMORY),
        "memory_stats": _constant({}),
        "get_rng_state": _constant(torch.zeros(16, dtype=torch.uint8)),
        "device": lambda *_: nullcontext(),
        "stream": lambda *_: nullcontext(),
        "Stream": _Nothing,
        "Event": _Event,
        "current_stream": lambda *_: _Nothing(),
        "default_stream": lambda *_: _Nothing(),
    }


def _constant(value: Any) -> Callable[..., Any]:
    """Return a new function each time: torch keeps rules by function."""
    return lambda *_, **__: value


def _pinned(tensor: torch.Tensor, *_: Any) -> torch.Tensor:
    if isinstance(tensor, Disguised):
        raise rules.CudaRefuses("cannot pin a tensor of the device")
    own = tensor.clone()
    own.is_pinned_here = True  # type: ignore[attr-defined]
    return own


def _patch_process_groups() -> None:
    first = torch.distributed.init_process_group

    def init_process_group(backend: str | None = None, *args: Any, **kwargs: Any) -> None:
        assert backend == "nccl", backend
        kwargs.pop("device_id", None)
        first("gloo", *args, **kwargs)

    torch.distributed.init_process_group = init_process_group


def _patch_attention() -> None:
    """Check what fused attention gets, and note it in a pass that is differentiated.

    Its memory-efficient backward pass, which a mask leads to, adds up in an open order.
    """
    functional = torch.nn.functional
    first = functional.scaled_dot_product_attention

    def attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, **more):  # type: ignore[no-untyped-def]
        if not query.is_cuda:
            return first(query, key, value, attn_mask, dropout_p, is_causal, **more)
        if not query.dtype == key.dtype == value.dtype:
            raise rules.CudaRefuses(f"attention of {query.dtype}, {key.dtype}, {value.dtype}")
        if attn_mask is not None and attn_mask.dtype not in (torch.bool, query.dtype):
            raise rules.CudaRefuses(f"attention: mask {attn_mask.dtype}, query {query.dtype}")
        assert not dropout_p and not is_causal, "ptrun asks for neither"
        if torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value)):
            rules.EVENTS.note(rules.LIBRARY, "backward pass of fused attention")
        scale = more.get("scale")
        scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
        if attn_mask is not None and attn_mask.dtype is torch.bool:
            scores = scores.masked_fill(~attn_mask, -torch.inf)
        elif attn_mask is not None:
            scores = scores + attn_mask
        return torch.ops.aten._safe_softmax(scores, -1) @ value

    functional.scaled_dot_product_attention = attention
