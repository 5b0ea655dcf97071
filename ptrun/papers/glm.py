"""Import of GLM-2B or GLM-10B as a GPT-2 with block positions: `ptrun import glm SOURCE --out DIR`.

Names and merging follow the authors' code (THUDM/GLM: model/modeling_glm.py, change_mp.py). A
checkpoint does not store the width of a head; it is 64 in all released models.
"""

from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from ptrun.errors import UserError
from ptrun.hub.convert import Dtype, Imported, write_config
from ptrun.hub.pickled import read_snapshot
from ptrun.hub.staging import check_new
from ptrun.papers.parts import Shards, Target, check_matrices, convert, layer_count
from ptrun.papers.shards import read_byte_pairs, read_ranks, weight_and_bias
from ptrun.papers.tokenizers import END, GLM_SPECIAL, START_OF_PIECE, add_special, write

POSITIONS, HEAD_WIDTH = 1025, 64
GPT2_END, GPT2_START = 50256, 50257  # <|endoftext|>, <|startofpiece|>
_WORDS = "word_embeddings.weight"
_TABLES = {"wpe": "position_embeddings", "wbe": "block_position_embeddings"}
_STRAY = ("dense.", "out_proj.")  # an untrained classifier that glm-2b on the hub carries
_LEAVES = {  # ours: theirs, rows and columns over the width, axis of the split, fused pieces
    "ln_1": ("input_layernorm", (1,), None, 1),
    "attn.c_attn": ("attention.query_key_value", (3, 1), 0, 3),
    "attn.c_proj": ("attention.dense", (1, 1), 1, 1),
    "ln_2": ("post_attention_layernorm", (1,), None, 1),
    "mlp.c_fc": ("mlp.dense_h_to_4h", (4, 1), 0, 1),
    "mlp.c_proj": ("mlp.dense_4h_to_h", (1, 4), 1, 1),
}


@dataclass(frozen=True)
class GLMSizes:
    """The whole model's sizes, all ranks together."""

    vocab: int
    width: int
    layers: int


def import_glm(
    source: Path,
    out: Path,
    *,
    dtype: Dtype | None = None,
    tokenizer: Path | None = None,
) -> Imported:
    """Write the folder of a checkpoint and return a summary of it.

    Args beyond those of `ptrun.papers.parts.convert`:
        source: the authors' folder of mp_rank files, or the folder above it; or a local snapshot
            of the hub's repository.
        tokenizer: folder with GPT-2's tokenizer.
    """
    check_new(out)
    if any(source.glob("*.safetensors")) or any(source.glob("pytorch_model*.bin")):
        shards = Shards([read_snapshot(source, "glm.")], "part")
    else:
        other = ",\nor a snapshot of the hub with pytorch_model*.bin or *.safetensors"
        shards = Shards(read_ranks(source, other))
    sizes = _sizes(shards)
    words = _tokenizer(tokenizer, sizes.vocab)
    stray = sorted(name for name in shards.shapes if name.startswith(_STRAY))
    tensors = targets(sizes)
    shards.check(tensors, model="GLM", spare=stray)

    def finish(folder: Path, kind: str) -> None:
        ids = GPT2_END, GPT2_START
        if words is not None:
            write(words, folder)
            ids = words.token_to_id(END), words.token_to_id(START_OF_PIECE)
        write_config(folder, model_config(sizes, kind, *ids))

    size = convert(shards, tensors, out, finish, dtype=dtype)
    notes = (
        *([f"left out: {', '.join(stray)} (a classifier)"] if stray else []),
        *([] if words else ["no tokenizer (import with --tokenizer FOLDER, GPT-2's)"]),
    )
    return Imported(out, sizes, *size, notes)


def targets(sizes: GLMSizes) -> list[Target]:
    """Return all tensors of the model, under the names of `GPT2LMHeadModel`."""
    width = sizes.width
    tables = (
        Target(f"transformer.{ours}.weight", f"transformer.{theirs}.weight", (POSITIONS, width))
        for ours, theirs in _TABLES.items()
    )
    layers: list[Target] = []
    for i, (ours, leaf) in product(range(sizes.layers), _LEAVES.items()):
        theirs, over, axis, pieces = leaf
        shape = tuple(width * times for times in over)
        names = f"transformer.h.{i}.{ours}", f"transformer.layers.{i}.{theirs}"
        weight, bias = weight_and_bias(names, shape, axis, pieces)
        # GPT-2's Conv1D holds input by output
        layers += [replace(weight, transposed=len(shape) == 2), bias]
    last = weight_and_bias(("transformer.ln_f", "transformer.final_layernorm"), (width,), None)
    words = Target("transformer.wte.weight", _WORDS, (sizes.vocab, width), 0)
    return [words, *tables, *layers, *last]


def model_config(sizes: GLMSizes, dtype: str, end: int, start: int) -> dict[str, Any]:
    """Return the config.json of `BlockLM`; `end` and `start` are special ids."""
    return {
        "architectures": ["BlockLM"],
        "model_type": "blocklm",
        "dtype": dtype,
        "vocab_size": sizes.vocab,
        "n_positions": POSITIONS,
        "n_embd": sizes.width,
        "n_layer": sizes.layers,
        "n_head": sizes.width // HEAD_WIDTH,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "resid_pdrop": 0.1,
        "embd_pdrop": 0.1,
        "attn_pdrop": 0.1,
        "pad_token_id": end,
        "bos_token_id": end,
        "eos_token_id": end,
        "decoder_start_token_id": start,
        "tie_word_embeddings": True,
    }


def _sizes(shards: Shards) -> GLMSizes:
    tables = [f"transformer.{theirs}.weight" for theirs in _TABLES.values()]
    check_matrices(
        shards.shapes,
        (_WORDS, *tables),
        "this is not a GLM checkpoint",
        "the authors' layout: word_embeddings, transformer.layers.*, "
        "transformer.block_position_embeddings",
    )
    for table in tables:
        if (length := shards.shapes[table][0]) != POSITIONS:
            why = "\nThe authors' code fills missing rows with random values; ptrun does not."
            raise UserError(
                f"{table}: {length} rows; expected {POSITIONS}.{why if length < POSITIONS else ''}"
            )
    rows, width = shards.shapes[_WORDS]
    if width % HEAD_WIDTH:
        raise UserError(f"{_WORDS}: {width} columns; expected a multiple of {HEAD_WIDTH}.")
    return GLMSizes(rows * shards.count, width, layer_count(shards.shapes, "transformer.layers"))


def _tokenizer(folder: Path | None, rows: int) -> Any:
    """Return GLM's tokenizer from GPT-2's files, or None without a folder."""
    is_gpt2 = rows > GPT2_END + len(GLM_SPECIAL)
    if folder is None and not is_gpt2:
        raise UserError(
            f"{_WORDS}: {rows} rows; GLM-2B and GLM-10B have 50304, for GPT-2's vocabulary. For a "
            "smaller byte-level BPE add --tokenizer FOLDER."
        )
    if folder is None:
        return None
    words = read_byte_pairs(folder).tokenizer()
    add_special(words)
    end, size = words.token_to_id(END), len(words.get_vocab())
    is_whole = (end, words.token_to_id(START_OF_PIECE)) == (GPT2_END, GPT2_START)
    if size > rows or (is_gpt2 and not is_whole):
        raise UserError(
            f"--tokenizer {folder}: {END} is {end} of {size:,} entries with GLM's special tokens, "
            f"but the model has {rows} rows.\nUse GPT-2's files, where {END} is {GPT2_END}."
        )
    return words
