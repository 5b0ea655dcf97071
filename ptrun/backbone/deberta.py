"""DeBERTa's disentangled attention (He et al. 2021), versions 1 and 2, with prefixes.

As in the code of P-tuning v2, prefix keys get no relative-position bias and the usual scale
1 / sqrt(d x (1 + number of bias types)). The dropout on the table of relative positions is omitted:
it is one draw for a whole batch, but rows must not depend on each other.
"""

import functools
import math
from typing import Any

import torch
from torch import Tensor, nn

from ptrun.backbone.attention import extend, joined
from ptrun.backbone.injection import link_of


def wrap(layers: Any) -> None:
    """Make the attention of each layer read prefixes."""
    for layer in layers:
        module = layer.attention.self
        module.forward = functools.partial(_attend, module)


def _attend(
    module: Any,
    hidden: Tensor,
    attention_mask: Tensor,
    output_attentions: bool = False,
    query_states: Tensor | None = None,
    relative_pos: Tensor | None = None,
    rel_embeddings: Tensor | None = None,
) -> tuple[Tensor, None]:
    """Return attention over prefix and tokens, `[B, T, H]`, and no weights."""
    query, key, value, bias = _parts(module, hidden, relative_pos, rel_embeddings)
    link, mask, length = link_of(module), attention_mask.bool(), 0
    scores = torch.matmul(query, key.transpose(2, 3)) + bias
    prefix = link.prefix()
    if prefix is not None:
        length = prefix.key.shape[2]
        extended = extend(mask, prefix, key)
        assert extended is not None
        mask = extended
        prefixed = torch.matmul(query, prefix.key.to(query.dtype).transpose(2, 3))
        scores = torch.cat([prefixed, scores], dim=-1)
        value = joined(prefix, key, value)[1]
    scores = _mixed(module, "head_logits_proj", scores)
    weights = scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(dim=-1)
    if module.training:
        weights = link.drop(weights, module.dropout.p, length)
    weights = _mixed(module, "head_weights_proj", weights)
    return torch.matmul(weights, value).transpose(1, 2).flatten(2), None


def _mixed(module: nn.Module, name: str, scores: Tensor) -> Tensor:
    """Return scores after a "talking heads" projection, if the model has one."""
    projection = getattr(module, name, None)
    if projection is None:
        return scores
    mixed: Tensor = projection(scores.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
    return mixed


def _parts(
    module: Any, hidden: Tensor, relative: Tensor | None, table: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor | float]:
    """Return scaled queries, keys, values `[B, heads, T, d]` and the relative bias of scores."""
    first = hasattr(module, "in_proj")
    query, key, value = projected(module, hidden)
    named = module.pos_att_type
    kinds = 1 + (len(named) if first else sum(kind in named for kind in ("c2p", "p2c")))
    scale = math.sqrt(query.shape[-1] * kinds)
    if not module.relative_attention:
        return query / scale, key, value, 0.0
    if first:
        bias = module.disentangled_att_bias(query / scale, key, relative, table, kinds)
        return query / scale, key, value, bias
    folded = query.flatten(0, 1), key.flatten(0, 1)
    bias = module.disentangled_attention_bias(*folded, relative, table, kinds)
    return query / scale, key, value, bias.view(*query.shape[:3], -1)


def projected(module: Any, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values `[B, heads, T, d]` of either version.

    Version 1 has one projection, heads first, and separate biases of queries and values.
    """
    if not hasattr(module, "in_proj"):
        shape = (*hidden.shape[:2], module.num_attention_heads, -1)
        maps = (module.query_proj, module.key_proj, module.value_proj)
        query, key, value = (project(hidden).view(shape).transpose(1, 2) for project in maps)
        return query, key, value
    query, key, value = module.transpose_for_scores(module.in_proj(hidden)).chunk(3, dim=-1)
    query_bias, value_bias = (
        module.transpose_for_scores(bias[None, None]).to(hidden.dtype)  # the library keeps fp32
        for bias in (module.q_bias, module.v_bias)
    )
    return query + query_bias, key, value + value_bias
