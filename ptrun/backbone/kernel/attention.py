"""Attention with a prefix, a mask, a bias and keyed dropout, without scores in memory.

Forward and backward run in Triton (`forward.py`, `backward.py`). Letters in shapes: B rows, T
queries, S keys, P vectors of a prefix, d head size, N packed tokens.
"""

from typing import Any

import torch
from torch import Tensor

from ptrun.backbone.base import Prefix
from ptrun.backbone.kernel.launch import Launch, Terms


def attention(
    query: Tensor, key: Tensor, value: Tensor, prefix: Prefix | None, terms: Terms
) -> Tensor:
    """Return attention over prefix and tokens, `[B, T, heads, d]`.

    `query` is `[B, heads, T, d]`; `key` and `value` are `[B, key heads, S, d]`. Packed, B is 1 and
    T and S are N, but the rows of the prefix are those of the batch. Computation is in the type of
    the queries, or that of autocast. A query that sees no key gives zeros.
    """
    dtype = _dtype(query)
    vectors: list[Tensor | None] = [query, key, value, None, None]
    mask = None
    if prefix is not None and prefix.key.shape[2]:
        vectors[3:], mask = [prefix.key, prefix.value], prefix.mask
    dense = (None if own is None else _dense(own.to(dtype)) for own in vectors)
    out: Tensor = _Attention.apply(*dense, mask, terms)  # type: ignore[no-untyped-call]
    return out


def _dtype(query: Tensor) -> torch.dtype:
    """Return the type to compute in; the meta device has no autocast."""
    device = query.device.type
    if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
        return torch.get_autocast_dtype(device)
    return query.dtype


def _dense(vectors: Tensor) -> Tensor:
    """Return vectors whose numbers are neighbours in memory."""
    return vectors if vectors.stride(-1) == 1 else vectors.contiguous()


class _Attention(torch.autograd.Function):
    """The forward pass keeps its inputs, its output and one number per query and head."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        out, sums = Launch(*given).forward()
        ctx.save_for_backward(*given[:5], out, sums)
        ctx.rest = given[5:]
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        *vectors, out, sums = ctx.saved_tensors
        launch, grad = Launch(*vectors, *ctx.rest), gradients[0].contiguous()
        known = {"GRAD": grad, "SUMS": sums, "DELTAS": launch.deltas(out, grad)}
        needed = ctx.needs_input_grad
        query = launch.queries(**known) if needed[0] else None
        text = launch.keys(**known) if any(needed[1:3]) else (None, None)
        prefix = launch.prefix(**known) if any(needed[3:5]) else (None, None)
        return query, *text, *prefix, None, None
