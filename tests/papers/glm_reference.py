"""GLM in plain torch, from the tensors of its authors' checkpoints under their own names."""

import math

import torch
from torch.nn import functional


def original(state):
    """Return a hosted model's tensors under the authors' names."""
    names = {"wte": "word_embeddings", "wpe": "transformer.position_embeddings"}
    names |= {"wbe": "transformer.block_position_embeddings", "ln_f": "transformer.final_layernorm"}
    inside = {"ln_1": "input_layernorm", "attn.c_attn": "attention.query_key_value"}
    inside |= {"attn.c_proj": "attention.dense", "ln_2": "post_attention_layernorm"}
    inside |= {"mlp.c_fc": "mlp.dense_h_to_4h", "mlp.c_proj": "mlp.dense_4h_to_h"}
    found = {}
    for name, tensor in state.items():
        path, _, last = name.removeprefix("transformer.").rpartition(".")
        if name == "lm_head.weight":
            continue
        if path in names:
            found[f"{names[path]}.{last}"] = tensor
            continue
        _, layer, part = path.split(".", 2)
        turned = tensor.t() if tensor.dim() == 2 else tensor
        found[f"transformer.layers.{layer}.{inside[part]}.{last}"] = turned
    return found


def logits(state, ids, places, inside, sep, heads, prefix=None):
    """Return the logits `[T, V]` of one row; `prefix [L, N, H]` stands before attention's input.

    Row i sees column j if j < sep or j <= i; prefix columns are seen by all.
    """
    hidden = state["word_embeddings.weight"][ids]
    hidden = hidden + state["transformer.position_embeddings.weight"][places]
    hidden = hidden + state["transformer.block_position_embeddings.weight"][inside]
    layers = 1 + max(int(name.split(".")[2]) for name in state if ".layers." in name)
    for layer in range(layers):
        own = f"transformer.layers.{layer}."
        before = None if prefix is None else prefix[:, layer]
        normed = _norm(state, own + "input_layernorm", hidden)
        hidden = hidden + _attention(state, own + "attention.", normed, sep, heads, before)
        normed = _norm(state, own + "post_attention_layernorm", hidden)
        wide = _linear(state, own + "mlp.dense_h_to_4h", normed)
        wide = 0.5 * wide * (1 + torch.tanh(0.7978845608028654 * wide * (1 + 0.044715 * wide**2)))
        hidden = hidden + _linear(state, own + "mlp.dense_4h_to_h", wide)
    out = _norm(state, "transformer.final_layernorm", hidden)
    return out @ state["word_embeddings.weight"].t()


def _attention(state, own, normed, sep, heads, before):
    tokens, width = normed.shape
    extra = 0 if before is None else len(before)
    read = normed if before is None else torch.cat([before, normed])
    mixed = _linear(state, own + "query_key_value", read)
    query, key, value = (part.view(len(read), heads, -1) for part in mixed.split(width, dim=-1))
    scores = torch.einsum("ihd,jhd->hij", query[extra:], key) / math.sqrt(width // heads)
    row, column = torch.arange(tokens)[:, None], torch.arange(tokens)[None]
    mask = ((column < sep) | (column <= row)).float()
    mask = torch.cat([torch.ones(tokens, extra), mask], dim=1)
    scores = scores * mask - 65504.0 * (1 - mask)
    out = torch.einsum("hij,jhd->ihd", scores.softmax(dim=-1), value)
    return _linear(state, own + "dense", out.reshape(tokens, width))


def _linear(state, name, x):
    return functional.linear(x, state[name + ".weight"], state[name + ".bias"])


def _norm(state, name, x):
    return functional.layer_norm(
        x, x.shape[-1:], state[name + ".weight"], state[name + ".bias"], eps=1e-5
    )
