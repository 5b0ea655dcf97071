"""Attention with per-layer prefixes, registered with transformers under our own name.

The library's `past_key_values` shifts positions, is mutated by the forward, is missing in some
families and is dropped in silence by activation checkpointing (5.23). A registered attention
function has none of these faults: it puts the prefix of the current pass before keys and values.
"""

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from ptrun.backbone.base import Prefix
from ptrun.backbone.dropout import KeyedDropout
from ptrun.backbone.injection import Injection

NAME = "ptrun"


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **_: object,
) -> tuple[Tensor, None]:
    """Return attention over prefix and tokens, `[B, T, heads, d]`, and no weights.

    `attention_mask` is bool, `[B, 1, 1 or T, T]`, or None where every key counts.
    """
    injection, layer = _injection_of(module)
    prefix = injection.prefix(layer)
    length = 0
    if prefix is not None:
        length = prefix.key.shape[2]
        attention_mask = _extend(attention_mask, prefix, key)
        key = torch.cat([prefix.key.to(key.dtype), key], dim=2)
        value = torch.cat([prefix.value.to(value.dtype), value], dim=2)
    if dropout and injection.keys is not None:
        out = _with_dropout(module, query, key, value, attention_mask, scaling, length)
    else:
        out = functional.scaled_dot_product_attention(
            query, key, value, attn_mask=attention_mask, scale=scaling
        )
    return out.transpose(1, 2), None


def _extend(mask: Tensor | None, prefix: Prefix, key: Tensor) -> Tensor | None:
    """Put the prefix's columns before those of the tokens."""
    rows, _, tokens, _ = key.shape
    if mask is None and prefix.mask is None:
        return None
    if mask is None:
        mask = torch.ones(rows, 1, 1, tokens, dtype=torch.bool, device=key.device)
    seen = prefix.mask
    if seen is None:
        seen = torch.ones(rows, prefix.key.shape[2], dtype=torch.bool, device=key.device)
    columns = seen[:, None, None, :].expand(-1, -1, mask.shape[2], -1)
    return torch.cat([columns, mask], dim=-1)


def _with_dropout(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    scaling: float | None,
    origin: int,
) -> Tensor:
    """Spell attention out, so that the dropout of its weights is ours."""
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    scores = torch.matmul(query * scale, key.transpose(2, 3))
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    dropout = cast(KeyedDropout, module.dropout)
    return torch.matmul(dropout(scores.softmax(dim=-1), origin), value)


def _injection_of(module: nn.Module) -> tuple[Injection, int]:
    """Return what `connect` told the module: where its prefixes are, and its layer."""
    connected: tuple[Injection, int] = object.__getattribute__(module, "ptrun_injection")
    return connected


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, sdpa_mask)
