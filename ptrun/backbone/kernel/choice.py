"""Which attention the kernel computes: on CUDA all that it can, where it agrees with torch.

The plain path computes the rest: on a CPU, in fp64, with a learned bias, with a head size over 256,
and that of DeBERTa, whose bias is a product of queries and keys.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

_LOG = logging.getLogger(__name__)
_TYPES = (torch.float32, torch.bfloat16, torch.float16)
_WIDEST = 256  # larger tiles do not fit in shared memory
_forced: bool | None = None


def suits(query: Tensor, value: Tensor, mask: Tensor | None, bias: Tensor | None) -> bool:
    """Return whether the kernel computes an attention.

    Args:
        query: `[B, heads, T, d]`.
        value: `[B, key heads, S, d]`.
        mask: `[B, 1, 1 or T, S]` or None; the kernel reads a bool one.
        bias: `[1 or B, heads, T, S]` or None; the kernel has no gradient for it.
    """
    width, on_gpu = query.shape[-1], query.is_cuda
    if not (on_gpu if _forced is None else _forced):
        return False
    if query.dtype not in _TYPES or width > _WIDEST or width != value.shape[-1]:
        return False
    if mask is not None and (mask.dtype != torch.bool or mask.shape[1] != 1):
        return False
    if bias is not None and bias.requires_grad:
        return False
    return not on_gpu or _works(query.device, query.dtype, width)


@contextmanager
def use(on: bool) -> Iterator[None]:
    """Compute attention by the kernel on any device, or nowhere: for tests and benchmarks.

    On a CPU the kernel needs Triton's interpreter (TRITON_INTERPRET=1). On the meta device nothing
    runs.
    """
    global _forced
    before, _forced = _forced, on
    try:
        yield
    finally:
        _forced = before


@cache
def _works(device: torch.device, dtype: torch.dtype, width: int) -> bool:
    """Return whether the kernel runs on a device and agrees with torch; say so if it does not."""
    if find_spec("triton") is None:
        _LOG.info("triton is not installed: the scores of attention are kept in memory")
        return False
    from ptrun.backbone.kernel.probe import error

    _LOG.info("checking the attention kernel on %s; Triton compiles it the first time", device)
    with torch.enable_grad(), torch.autocast(device.type, enabled=False), _unseen():
        try:
            far = error(device, dtype, width)
        except Exception as failed:  # Triton, its compiler and the driver share no error class
            _LOG.warning("plain attention is used; the kernel fails on %s: %s", device, failed)
            return False
    if not far <= 1:  # nan too
        _LOG.warning("plain attention is used; the kernel is wrong on %s: %g", device, far)
    return far <= 1


def _unseen() -> saved_tensors_hooks:
    """Return a context whose saved tensors activation checkpointing does not count."""
    return saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor)
