"""fairseq's Megatron-11B in plain torch, from the tensors of its checkpoint by their own names."""

import math

import torch
from torch.nn import functional


def original(state):
    """Return a hosted model's tensors under fairseq's names."""
    own = {name: tensor for name, tensor in state.items() if name != "lm_head.weight"}
    return {name.replace("model.", "decoder.", 1): tensor for name, tensor in own.items()}


def sinusoids(rows, width):
    """Return the table of positions: sines, then cosines; row 1 is padding's, zero."""
    half = width // 2
    rates = torch.exp(torch.arange(half).float() * -(math.log(10000) / (half - 1)))
    angles = torch.arange(rows).float()[:, None] * rates
    table = torch.cat([angles.sin(), angles.cos()], dim=1)
    table[1] = 0
    return table


def logits(state, ids, heads, embeddings=None):
    """Return the logits `[T, V]` of one row; `embeddings [T, H]` in place of the ids' raw ones."""
    table = state["decoder.embed_tokens.weight"]
    width = table.shape[1]
    raw = table[ids] if embeddings is None else embeddings
    hidden = math.sqrt(width) * raw + sinusoids(len(raw) + 2, width)[2:]
    layers = 1 + max(int(name.split(".")[2]) for name in state if ".layers." in name)
    for layer in range(layers):
        own = f"decoder.layers.{layer}."
        normed = _norm(state, own + "self_attn_layer_norm", hidden)
        hidden = hidden + _attention(state, own + "self_attn.", normed, heads)
        normed = _norm(state, own + "final_layer_norm", hidden)
        wide = functional.gelu(_linear(state, own + "fc1", normed))
        hidden = hidden + _linear(state, own + "fc2", wide)
    if "decoder.layer_norm.weight" in state:
        hidden = _norm(state, "decoder.layer_norm", hidden)
    return hidden @ table.t()


def _attention(state, own, normed, heads):
    tokens, width = normed.shape
    query, key, value = (
        _linear(state, own + name, normed).view(tokens, heads, -1).transpose(0, 1)
        for name in ("q_proj", "k_proj", "v_proj")
    )
    scores = query @ key.transpose(1, 2) * (width // heads) ** -0.5
    ahead = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
    weights = scores.masked_fill(ahead, -torch.inf).softmax(dim=-1)
    return _linear(state, own + "out_proj", (weights @ value).transpose(0, 1).reshape(tokens, -1))


def _linear(state, name, x):
    return functional.linear(x, state[name + ".weight"], state[name + ".bias"])


def _norm(state, name, x):
    return functional.layer_norm(
        x, x.shape[-1:], state[name + ".weight"], state[name + ".bias"], eps=1e-5
    )
