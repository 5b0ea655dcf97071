"""Attention with per-layer prefixes, registered with transformers under our own name.

The library's `past_key_values` shifts positions, is mutated by the forward pass, is missing in some
families and is silently dropped by activation checkpointing (5.23). A registered attention function
avoids all of this: it concatenates the prefix of the current pass with keys and values.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AttentionInterface
from transformers.masking_utils import (
    AttentionMaskInterface,
    bidirectional_mask_function,
    causal_mask_function,
)

from ptrun.backbone import kernel
from ptrun.backbone.base import Prefix
from ptrun.backbone.dropout import drop_lines
from ptrun.backbone.injection import link_of
from ptrun.backbone.kernel import Terms, attention
from ptrun.backbone.packing import EVERY, LOOK_BACK, Block, Reach

NAME = "ptrun"


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: "Tensor | Sight | None",
    scaling: float | None = None,
    dropout: float = 0.0,
    position_bias: Tensor | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: object,
) -> tuple[Tensor, None]:
    """Return attention over prefix and tokens, `[B, T, heads, d]`, and no weights.

    `attention_mask` is bool, `[B, 1, 1 or T, S]`, or what each token sees of its row; None means
    that every key is visible. With T < S the queries are the last tokens.
    `position_bias [1, heads, T, S]` (T5) is added to the scores; it is zero for prefixes. Scores
    are bounded by `softcap` (Gemma 2). `s_aux [heads]` are scores of a key without value (gpt-oss).
    Packed tokens `[1, heads, N, d]` attend inside their rows, whatever the mask.
    On a GPU a kernel computes most of this and keeps no scores (`ptrun.backbone.kernel`).
    """
    link = link_of(module)
    packing = link.injection.packing
    link.show(key, value, attention_mask)
    masks = link.keyed(query.shape[1], dropout)
    bias = None if link.site[0] == "cross" else position_bias  # there T5's is zero
    form = Form(scaling, position_bias, softcap, s_aux)
    mask, reach, narrow = attention_mask, None, False
    if isinstance(mask, Sight):
        reach = mask.reach
        narrow = packing is not None and reach.within(packing.width) != packing.reach
        mask = None if packing else mask.rows.visible(reach, query.shape[2])
    if form.plain and not narrow and kernel.suits(query, value, mask, bias):
        scale = query.shape[-1] ** -0.5 if scaling is None else scaling
        terms = Terms(scale, mask, bias, packing, masks)
        return attention(query, key, value, link.prefix(), terms), None
    if packing is None or not packing.blocks:  # packed tokens without blocks: a GPU, no kernel
        if packing:
            grids = (packing.unpack(t.transpose(1, 2)) for t in (query, key, value))
            query, key, value = (grid.transpose(1, 2) for grid in grids)
            mask = (packing.reach if reach is None else reach)(packing.mask)
        out = _attend(link.prefix(), query, key, value, mask, masks and masks.behind, form)
        out = out.transpose(1, 2)
        return (cast(Tensor, packing.pack(out)) if packing else out), None
    sizes = [block.tokens for block in packing.blocks]
    lines: Sequence[Tensor | None] = [None] * len(sizes)
    if masks is not None:
        every = masks.token_lines(packing.rows, packing.columns, query.shape[1])
        lines = torch.split(every, sizes)
    parts = (torch.split(t[0], sizes, dim=1) for t in (query, key, value))
    prefix, outs = link.prefix(), []
    prefixes: list[Prefix | None] = [None] * len(sizes)
    if prefix is not None:
        keys, values = packing.by_block(prefix.key), packing.by_block(prefix.value)
        shown = [None] * len(keys) if prefix.mask is None else packing.by_block(prefix.mask)
        prefixes = [Prefix(*three) for three in zip(keys, values, shown, strict=True)]
    for block, prefix, line, *three in zip(packing.blocks, prefixes, lines, *parts, strict=True):
        q, k, v = (t.unflatten(1, (-1, block.width)).transpose(0, 1) for t in three)
        drop = None
        if line is not None:
            cells = line.unflatten(0, (-1, block.width)).transpose(1, 2)
            drop = partial(drop_lines, lines=cells, p=dropout)
        seen = block.visible(packing.reach if reach is None else reach)
        out = _attend(prefix, q, k, v, seen, drop, form)
        outs.append(out.transpose(1, 2).flatten(0, 1))
    return torch.cat(outs)[None], None


@dataclass(frozen=True)
class Form:
    """How a model turns products of queries and keys into scores, as in `attend`.

    >>> import torch
    >>> from ptrun.backbone.attention import Form
    >>> query, key = torch.ones(1, 2, 3, 8), torch.ones(1, 2, 5, 8)  # [B, heads, T, d]
    >>> Form().weights(query, key, None).shape
    torch.Size([1, 2, 3, 5])
    """

    scaling: float | None = None
    bias: Tensor | None = None
    softcap: float | None = None
    sinks: Tensor | None = None

    @property
    def plain(self) -> bool:
        """Whether scores are products, scaled and biased, and nothing more."""
        return self.softcap is None and self.sinks is None

    def weights(self, query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
        """Return the weights of keys, `[B, heads, T, S]`; `mask` is bool, or has the bias in it."""
        scale = query.shape[-1] ** -0.5 if self.scaling is None else self.scaling
        scores = torch.matmul(query * scale, key.transpose(2, 3))
        if self.softcap is not None:
            scores = (scores / self.softcap).tanh() * self.softcap
        if mask is not None and mask.dtype == torch.bool:
            scores = scores.masked_fill_(~mask, torch.finfo(scores.dtype).min)
        elif mask is not None:  # nothing keeps the scores as they were
            scores = scores.add_(mask) if mask.dtype == scores.dtype else scores + mask
        if self.sinks is None:
            return scores.softmax(dim=-1)
        sinks = self.sinks.to(scores.dtype).view(1, -1, 1, 1).expand(*scores.shape[:3], 1)
        return torch.cat([scores, sinks], dim=-1).softmax(dim=-1)[..., :-1]


def _attend(
    prefix: Prefix | None,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    drop: Callable[..., Tensor] | None,
    form: Form,
) -> Tensor:
    """Return attention `[B, heads, T, d]` of a batch, or of a block of one.

    `drop` applies our own dropout to the weights; None is evaluation.
    """
    length = 0
    if prefix is not None:
        length = prefix.key.shape[2]
        mask = extend(mask, prefix, key)
        key, value = joined(prefix, key, value)
    if form.bias is not None:  # masked keys have the lowest value
        bias = functional.pad(form.bias.to(query.dtype), (length, 0))
        lowest = torch.finfo(query.dtype).min
        mask = bias if mask is None else bias.masked_fill(~mask, lowest)
    groups = query.shape[1] // key.shape[1]  # queries that share keys and values
    # on CUDA torch's attention adds up gradients in an open order
    open_order = query.is_cuda and any(t.requires_grad for t in (query, key, value))
    fused = drop is None and form.plain and not open_order
    shares = fused and groups > 1 and (mask is None or not query.is_cuda)
    if groups > 1 and not shares:
        key, value = (t.repeat_interleave(groups, dim=1) for t in (key, value))
    if fused:
        return functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, scale=form.scaling, enable_gqa=shares
        )
    weights = form.weights(query, key, mask)
    return torch.matmul(weights if drop is None else drop(weights, origin=length), value)


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
    return torch.cat([columns, mask.expand(len(columns), -1, -1, -1)], dim=-1)


@dataclass(frozen=True)
class Sight:
    """What the tokens of one pass see, in one kind of layer; attention makes the mask from it."""

    reach: Reach
    rows: Block


def sight_of(
    *,
    mask_function: Callable[..., Tensor],
    attention_mask: Tensor | None,
    kv_length: int,
    device: torch.device,
    **_: object,
) -> Sight:
    """Return what tokens see; transformers calls it where others make a mask.

    `mask_function` says of a query's and a key's index whether the query sees the key.
    `attention_mask` is `[B, S]`, or None if all of the `kv_length` tokens are real.
    """
    if attention_mask is None:
        attention_mask = torch.ones(1, kv_length, dtype=torch.bool, device=device)
    rows = Block(attention_mask)
    if mask_function is bidirectional_mask_function:
        return Sight(EVERY, rows)
    if mask_function is causal_mask_function:
        return Sight(LOOK_BACK, rows)
    place = torch.arange(kv_length + 1)  # a window that is wider makes no difference
    start = torch.zeros_like(place)
    before, after = (
        int(mask_function(0, 0, *pair).sum()) - 1 for pair in ((place, start), (start, place))
    )
    bounds = (None if bound == kv_length else bound for bound in (before, after))
    return Sight(Reach(*bounds), rows)


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, sight_of)
