"""Attention with per-layer prefixes, registered with transformers under our own name.

The library's `past_key_values` shifts positions, is mutated by the forward pass, is missing in some
families and is silently dropped by activation checkpointing (5.23). A registered attention function
avoids all of this: it concatenates the prefix of the current pass with keys and values.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from ptrun.backbone import kernel
from ptrun.backbone.base import Prefix
from ptrun.backbone.dropout import drop_lines
from ptrun.backbone.injection import link_of
from ptrun.backbone.kernel import Terms, attention
from ptrun.backbone.packing import Packing

NAME = "ptrun"


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    position_bias: Tensor | None = None,
    **_: object,
) -> tuple[Tensor, None]:
    """Return attention over prefix and tokens, `[B, T, heads, d]`, and no weights.

    `attention_mask` is bool, `[B, 1, 1 or T, S]`; None means that every key is visible.
    `position_bias [1, heads, T, S]` (T5) is added to the scores; it is zero for prefixes. Packed
    tokens `[1, heads, N, d]` attend inside their rows, whatever the mask.
    On a GPU a kernel computes all of this and keeps no scores (`ptrun.backbone.kernel`).
    """
    link = link_of(module)
    packing = link.injection.packing
    drops = dropout > 0 and link.injection.keys is not None
    bias = None if link.site[0] == "cross" else position_bias  # there T5's is zero
    if kernel.suits(query, value, attention_mask, bias):
        scale = query.shape[-1] ** -0.5 if scaling is None else scaling
        masks = link.keyed(query.shape[1], dropout) if drops else None
        terms = Terms(scale, attention_mask, bias, packing, masks)
        return attention(query, key, value, link.prefix(), terms), None
    if packing is None:
        drop = partial(link.drop, p=dropout) if drops else None
        prefix = link.prefix()
        out = _attend(prefix, query, key, value, attention_mask, scaling, drop, position_bias)
        return out.transpose(1, 2), None
    sizes = [block.tokens for block in packing.blocks]
    lines = torch.split(link.lines(query.shape[1]), sizes) if drops else [None] * len(sizes)
    parts = (torch.split(t[0], sizes, dim=1) for t in (query, key, value))
    prefixes, outs = _by_block(link.prefix(), packing), []
    for block, prefix, own, *three in zip(packing.blocks, prefixes, lines, *parts, strict=True):
        q, k, v = (t.unflatten(1, (-1, block.width)).transpose(0, 1) for t in three)
        drop = None
        if own is not None:
            cells = own.unflatten(0, (-1, block.width)).transpose(1, 2)
            drop = partial(drop_lines, lines=cells, p=dropout)
        out = _attend(prefix, q, k, v, block.visible, scaling, drop)
        outs.append(out.transpose(1, 2).flatten(0, 1))
    return torch.cat(outs)[None], None


def _attend(
    prefix: Prefix | None,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    scaling: float | None,
    drop: Callable[..., Tensor] | None,
    position_bias: Tensor | None = None,
) -> Tensor:
    """Return attention `[B, heads, T, d]` of a batch, or of a block of one.

    `drop` applies our own dropout to the weights; None is evaluation.
    """
    length = 0
    if prefix is not None:
        length = prefix.key.shape[2]
        mask = extend(mask, prefix, key)
        key, value = joined(prefix, key, value)
    if key.shape[1] != query.shape[1]:  # grouped queries share keys and values
        groups = query.shape[1] // key.shape[1]
        key, value = (t.repeat_interleave(groups, dim=1) for t in (key, value))
    mask = _biased(mask, position_bias, length, query.dtype)
    if drop is None and not _needs_order(query, key, value):
        return functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, scale=scaling
        )
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    weights = _masked(torch.matmul(query * scale, key.transpose(2, 3)), mask).softmax(dim=-1)
    return torch.matmul(weights if drop is None else drop(weights, origin=length), value)


def _needs_order(*tensors: Tensor) -> bool:
    """Return whether torch's attention would add up gradients in an open order: on CUDA."""
    return tensors[0].is_cuda and any(tensor.requires_grad for tensor in tensors)


def _by_block(prefix: Prefix | None, packing: Packing) -> list[Prefix | None]:
    """Return the prefix of the rows of each block."""
    if prefix is None:
        return [None] * len(packing.blocks)
    keys, values = packing.by_block(prefix.key), packing.by_block(prefix.value)
    masks = [None] * len(keys) if prefix.mask is None else packing.by_block(prefix.mask)
    return [Prefix(*three) for three in zip(keys, values, masks, strict=True)]


def joined(prefix: Prefix, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Return keys and values `[B, heads, P + S, d]`, the prefix's first."""
    return (
        torch.cat([prefix.key.to(key.dtype), key], dim=2),
        torch.cat([prefix.value.to(value.dtype), value], dim=2),
    )


def extend(mask: Tensor | None, prefix: Prefix, key: Tensor) -> Tensor | None:
    """Put the columns of the prefix before those of the tokens."""
    if prefix.mask is None:
        return None if mask is None else functional.pad(mask, (prefix.key.shape[2], 0), value=True)
    if mask is None:
        mask = key.new_ones(key.shape[0], 1, 1, key.shape[2], dtype=torch.bool)
    columns = prefix.mask[:, None, None, :].expand(-1, -1, mask.shape[2], -1)
    return torch.cat([columns, mask], dim=-1)


def _biased(
    mask: Tensor | None, bias: Tensor | None, length: int, dtype: torch.dtype
) -> Tensor | None:
    """Return the bool mask, or with a bias the bias with masked keys at the lowest value."""
    if bias is None:
        return mask
    bias = functional.pad(bias.to(dtype), (length, 0))
    return bias if mask is None else bias.masked_fill(~mask, torch.finfo(dtype).min)


def _masked(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Return scores under a bool mask, or plus a bias."""
    if mask is None or mask.dtype != torch.bool:
        return scores if mask is None else scores + mask
    return scores.masked_fill(~mask, torch.finfo(scores.dtype).min)


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, sdpa_mask)
