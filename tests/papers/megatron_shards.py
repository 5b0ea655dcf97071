"""A tiny decoder of fairseq's model-parallel kind, its tensors under fairseq's names, its files.

`whole_state` is what the unsplit model holds; `write_parts` splits it as fairseq does.
"""

import argparse
from pathlib import Path

import torch

from tests.papers.glm_shards import layer_shapes, random_state

ARGS = {"arch": "transformer_lm_megatron_11b", "decoder_attention_heads": 2, "decoder_layers": 2}
ARGS |= {"dropout": 0.1, "attention_dropout": 0.2, "activation_fn": "gelu"}
ARGS |= {"share_decoder_input_output_embed": True, "tokens_per_sample": 1024}
NOT_WEIGHTS = {
    "decoder.version": torch.tensor([3.0]),
    "decoder.embed_positions._float_tensor": torch.tensor([0.0]),
}


def whole_state(layers=2, width=32, inner=192, vocab=320, dtype=torch.float32, final_norm=False):
    """Return a random state dict; non-weights left out."""
    matrices = {f"self_attn.{letter}_proj": (width, width) for letter in ("q", "k", "v", "out")}
    matrices |= {"fc1": (inner, width), "fc2": (width, inner)}
    norms = ("self_attn_layer_norm", "final_layer_norm")
    shapes = {"decoder.embed_tokens.weight": (vocab, width)}
    for i in range(layers):
        shapes |= layer_shapes(f"decoder.layers.{i}.", matrices, norms, width)
    if final_norm:
        shapes |= layer_shapes("decoder.", {}, ["layer_norm"], width)
    return random_state(shapes, dtype, seed=6)


def cut(name, tensor, part, parts):
    leaf = ".".join(name.split(".")[-2:])
    if leaf in ("out_proj.weight", "fc2.weight"):
        return tensor.reshape(len(tensor), parts, -1)[:, part]
    if leaf.split(".")[0] in ("q_proj", "k_proj", "v_proj", "fc1", "embed_tokens"):
        return tensor.reshape(parts, -1, *tensor.shape[1:])[part]
    return tensor


def write_parts(state, folder: Path, parts: int, change=None, **args) -> Path:
    """Write model-model_part-*.pt; `change(part, tensors)` may spoil a part first.

    `args` replace those of ARGS; None takes one away.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for part in range(parts):
        held = {name: cut(name, tensor, part, parts).clone() for name, tensor in state.items()}
        held |= NOT_WEIGHTS
        if change is not None:
            change(part, held)
        given = ARGS | {"model_parallel_size": parts, "distributed_rank": part} | args
        known = {name: value for name, value in given.items() if value is not None}
        whole = {"args": argparse.Namespace(**known), "model": held, "extra_state": {"epoch": 3}}
        torch.save(whole, folder / f"model-model_part-{part}.pt")
    return folder
