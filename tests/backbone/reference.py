"""An encoder with deep prompts written out by hand, on a model's weights: the reference."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional


def encode(
    model: nn.Module,
    ids: Tensor,
    mask: Tensor,
    types: Tensor | None,
    prefix: Tensor | None,
    start: int,
) -> Tensor:
    """Return last hidden states `[B, T, H]`, one row and one head at a time.

    `prefix [layers, 2, P, H]` holds keys and values; `start` is the position id of the first token.
    """
    rows = [
        _row(model, ids[b, mask[b]], None if types is None else types[b, mask[b]], prefix, start)
        for b in range(len(ids))
    ]
    width = ids.shape[1]
    return torch.stack([functional.pad(row, (0, 0, 0, width - len(row))) for row in rows])


def _row(model, ids, types, prefix, start):
    embeddings = model.embeddings
    types = torch.zeros_like(ids) if types is None else types
    positions = torch.arange(start, start + len(ids))
    x = embeddings.word_embeddings.weight[ids] + embeddings.position_embeddings.weight[positions]
    x = _norm(x + embeddings.token_type_embeddings.weight[types], embeddings.LayerNorm)
    if hasattr(model, "embeddings_project"):
        x = _linear(x, model.embeddings_project)
    for index, layer in enumerate(model.encoder.layer):
        own = None if prefix is None else prefix[index]
        x = _layer(layer, x, own, model.config.num_attention_heads)
    return x


def _layer(layer, x, prefix, heads):
    attention = layer.attention
    q, k, v = (_linear(x, getattr(attention.self, n)) for n in ("query", "key", "value"))
    if prefix is not None:
        k, v = torch.cat([prefix[0], k]), torch.cat([prefix[1], v])
    size = q.shape[-1] // heads
    mixed = []
    for head in range(heads):
        part = slice(head * size, (head + 1) * size)
        weights = torch.softmax(q[:, part] @ k[:, part].T / math.sqrt(size), dim=-1)
        mixed.append(weights @ v[:, part])
    attended = _linear(torch.cat(mixed, dim=-1), attention.output.dense)
    x = _norm(attended + x, attention.output.LayerNorm)
    grown = functional.gelu(_linear(x, layer.intermediate.dense))
    return _norm(_linear(grown, layer.output.dense) + x, layer.output.LayerNorm)


def _linear(x, module):
    return x @ module.weight.T + module.bias


def _norm(x, module):
    centred = x - x.mean(dim=-1, keepdim=True)
    scaled = centred / torch.sqrt(centred.pow(2).mean(dim=-1, keepdim=True) + module.eps)
    return scaled * module.weight + module.bias
