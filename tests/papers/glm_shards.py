"""A tiny GLM's tensors under the authors' names, and its files as authors and hub have them.

`whole_state` is what the unsplit model holds; `write_ranks` splits it as model-parallel training
does, `write_hub` writes it as the hub's repository has it.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

ROWS = ("word_embeddings", "dense_h_to_4h")
COLUMNS = ("attention.dense.weight", "dense_4h_to_h.weight")
POSITIONS = 1025


def random_state(shapes, dtype, seed):
    """Return random tensors, nothing zero, not even biases."""
    drawn = torch.Generator().manual_seed(seed)
    state = {name: torch.randn(shape, generator=drawn) * 0.1 for name, shape in shapes.items()}
    norms = ("layernorm.weight", "layer_norm.weight")
    return {n: (tensor + n.endswith(norms)).to(dtype) for n, tensor in state.items()}


def layer_shapes(path, matrices, norms, width):
    """Return the shapes of a layer: weights and biases of its matrices and norms."""
    shapes = {f"{path}{name}.weight": shape for name, shape in matrices.items()}
    shapes |= {f"{path}{name}.bias": shape[:1] for name, shape in matrices.items()}
    return shapes | {f"{path}{n}.{leaf}": (width,) for n in norms for leaf in ("weight", "bias")}


def whole_state(layers=2, width=128, vocab=320, dtype=torch.float32, positions=POSITIONS):
    """Return a random state dict."""
    h = width
    matrices = {"attention.query_key_value": (3 * h, h), "attention.dense": (h, h)}
    matrices |= {"mlp.dense_h_to_4h": (4 * h, h), "mlp.dense_4h_to_h": (h, 4 * h)}
    norms = ("input_layernorm", "post_attention_layernorm")
    shapes = {"word_embeddings.weight": (vocab, h)}
    for kind in ("position_embeddings", "block_position_embeddings"):
        shapes[f"transformer.{kind}.weight"] = (positions, h)
    for i in range(layers):
        shapes |= layer_shapes(f"transformer.layers.{i}.", matrices, norms, h)
    shapes |= layer_shapes("transformer.", {}, ["final_layernorm"], h)
    return random_state(shapes, dtype, seed=5)


def cut(name, tensor, rank, ranks):
    if "query_key_value" in name:  # every rank has its own heads' queries, keys and values
        grid = tensor.reshape(3, ranks, -1, *tensor.shape[1:])
        return grid[:, rank].flatten(0, 1)
    if any(part in name for part in ROWS):
        return tensor.reshape(ranks, -1, *tensor.shape[1:])[rank]
    if name.endswith(COLUMNS):
        return tensor.reshape(len(tensor), ranks, -1)[:, rank]
    return tensor


def write_ranks(state, folder: Path, ranks: int, change=None, latest="latest", **extra) -> Path:
    """Write the authors' checkpoint; `change(rank, tensors)` may spoil a rank first."""
    bookkeeping = {"iteration": 9, "global_steps": 9, "optimizer": None, "mp_world_size": ranks}
    (folder / "9").mkdir(parents=True)
    for rank in range(ranks):
        held = {name: cut(name, tensor, rank, ranks).clone() for name, tensor in state.items()}
        if change is not None:
            change(rank, held)
        file = folder / "9" / f"mp_rank_{rank:02d}_model_states.pt"
        torch.save({"module": held} | bookkeeping | extra, file)
    (folder / latest).write_text("9\n")
    return folder


def write_hub(state, folder: Path, kind="bin", files=1, prefix="", index=True) -> Path:
    """Write a hub snapshot, in one file or several, with an index or without."""
    folder.mkdir(parents=True)
    stem, save = (
        ("pytorch_model", torch.save) if kind == "bin" else ("model", lambda s, f: save_file(s, f))
    )
    named = {f"{prefix}{name}": tensor for name, tensor in state.items()}
    places = {}
    for i in range(files):
        part = f"-{i + 1:05d}-of-{files:05d}" if files > 1 else ""
        file = f"{stem}{part}.{kind}"
        held = {name: tensor for j, (name, tensor) in enumerate(named.items()) if j % files == i}
        save(held, folder / file)
        places |= dict.fromkeys(held, file)
    if files > 1 and index:
        (folder / f"{stem}.{kind}.index.json").write_text(json.dumps({"weight_map": places}))
    config = {"model_type": "glm", "auto_map": {"AutoModel": "modeling_glm.GLMModel"}}
    config |= {"block_position_encoding": True, "max_sequence_length": 1024}
    (folder / "config.json").write_text(json.dumps(config))
    return folder
