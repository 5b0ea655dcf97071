"""Import of CPM-2, or of PPT's T5, from Megatron shards: `ptrun import cpm2 SHARDS --out DIR`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from ptrun.backbone.seq2seq import UNIT, factor
from ptrun.errors import UserError
from ptrun.hub.convert import Dtype, Imported, converted, write_config
from ptrun.hub.staging import check_new
from ptrun.papers.cpm2_text import read_vocabulary, write_tokenizer
from ptrun.papers.parts import Shards, Target, check_matrices, convert, layer_count
from ptrun.papers.shards import read_ranks

# The sizes of a CPM-2 checkpoint, read from its tensors, and their config.json.

EMBEDDINGS, PROMPT = "word_embeds.weight", "encoder.prompt_embeds.weight"
ALIASES = ("encoder.word_embeds.weight", "decoder.word_embeds.weight")

Shapes = Mapping[str, tuple[int, ...]]

T5_ROWS = (32_100, 32_128, 250_112)  # T5 v1.1 and its LM-adapted models, mT5
CPM2_ROWS = (26_240, 51_968)  # Chinese, Chinese-English
_BLOCK = "encoder.blocks.0"
_BIAS = f"{_BLOCK}.self_attn.self_attn.relative_attention_bias.weight"
_PROJECT = f"{_BLOCK}.self_attn.self_attn.project.weight"
_FEED_FORWARD = f"{_BLOCK}.ff.dense_relu_dense.wi_0.weight"


@dataclass(frozen=True)
class CPM2Sizes:
    """The whole model's sizes, all ranks together."""

    vocab: int
    d_model: int
    inner: int
    d_ff: int
    heads: int
    buckets: int
    encoder_layers: int
    decoder_layers: int

    @property
    def d_kv(self) -> int:
        """The width of a head."""
        return self.inner // self.heads

    @property
    def layers(self) -> str:
        """Number of layers: encoder+decoder."""
        return f"{self.encoder_layers}+{self.decoder_layers}"


_SPECIAL = ("pad_token_id", "eos_token_id", "decoder_start_token_id")


def read_sizes(shapes: Shapes, ranks: int) -> CPM2Sizes:
    """Return the sizes of a model, from the shapes of one rank's tensors."""
    check_matrices(
        shapes,
        (EMBEDDINGS, _BIAS, _PROJECT, _FEED_FORWARD),
        "these are not CPM-2 shards",
        "the layout of CPM-2 and PPT: encoder.blocks.*, decoder.blocks.*, word_embeds",
    )
    (rows, d_model), (buckets, heads) = shapes[EMBEDDINGS], shapes[_BIAS]
    return CPM2Sizes(
        vocab=rows * ranks,
        d_model=d_model,
        inner=shapes[_PROJECT][0] * ranks // 3,
        d_ff=shapes[_FEED_FORWARD][0] * ranks,
        heads=heads * ranks,
        buckets=buckets,
        encoder_layers=layer_count(shapes, "encoder.blocks"),
        decoder_layers=layer_count(shapes, "decoder.blocks"),
    )


def special_ids(rows: int, *, t5: bool) -> dict[str, int]:
    """Return the special ids of a vocabulary, which its size identifies, as keys of config.json."""
    ids = (0, 1, 0) if t5 or rows in T5_ROWS else (5, 8 if rows == CPM2_ROWS[1] else 7, 1)
    return dict(zip(_SPECIAL, ids, strict=True))


def model_config(sizes: CPM2Sizes, special: Mapping[str, int], dtype: str) -> dict[str, Any]:
    """Return the config.json of `T5ForConditionalGeneration`."""
    return {
        "architectures": ["T5ForConditionalGeneration"],
        "model_type": "t5",
        "dtype": dtype,
        "vocab_size": sizes.vocab,
        "d_model": sizes.d_model,
        "d_kv": sizes.d_kv,
        "d_ff": sizes.d_ff,
        "num_layers": sizes.encoder_layers,
        "num_decoder_layers": sizes.decoder_layers,
        "num_heads": sizes.heads,
        "relative_attention_num_buckets": sizes.buckets,
        "relative_attention_max_distance": 128,
        "dropout_rate": 0.0,
        "layer_norm_epsilon": 1e-6,
        "feed_forward_proj": "gated-gelu",
        # transformers 5 reads it as "do not scale the input of lm_head", and ties by values.
        "tie_word_embeddings": False,
        "is_encoder_decoder": True,
        "use_cache": True,
        **special,
    }


PROMPT_FILE, PROMPT_NAME = "prompt.safetensors", "prompt"


def import_cpm2(
    source: Path,
    out: Path,
    *,
    unscale: bool = False,
    dtype: Dtype | None = None,
    tokenizer: Path | None = None,
) -> Imported:
    """Write the folder of a checkpoint and return a summary of it.

    Args beyond those of `ptrun.papers.parts.convert`; a trained prompt goes to prompt.safetensors:
        source: the shards: a folder with `latest_checkpointed_iteration.txt`, or mp_rank files.
        unscale: undo the division by 100 of PPT's converted T5 shards.
        tokenizer: CPM-2's vocab.txt, copied into the folder.
    """
    check_new(out)
    shards = Shards(read_ranks(source))
    sizes = read_sizes(shards.shapes, shards.count)
    special = _special(sizes, tokenizer, unscale=unscale)
    tensors = targets(sizes)
    if sizes.inner % sizes.heads:
        raise UserError(f"attention has {sizes.inner} columns, no multiple of {sizes.heads} heads.")
    aliases = dict.fromkeys(ALIASES, EMBEDDINGS)
    shards.check(tensors, model="T5", aliases=aliases, spare=[PROMPT])
    if PROMPT in shards.shapes:
        shards.check_equal(PROMPT)

    def finish(folder: Path, kind: str) -> None:
        if PROMPT in shards.shapes:
            prompt = shards.parts[0][PROMPT]
            scale = UNIT if unscale else 1.0  # a prompt is scaled like the embeddings
            prompt = converted(prompt, PROMPT_NAME, prompt.dtype, scale).contiguous()
            save_file({PROMPT_NAME: prompt}, folder / PROMPT_FILE, {"format": "pt"})
        if tokenizer is not None:
            write_tokenizer(tokenizer, folder)
        write_config(folder, model_config(sizes, special, kind))

    times = factor if unscale else lambda name: 1.0
    size = convert(shards, tensors, out, finish, dtype=dtype, times=times)
    return Imported(out, sizes, *size, notes=("a prompt",) if PROMPT in shards.shapes else ())


def _special(sizes: CPM2Sizes, tokenizer: Path | None, *, unscale: bool) -> dict[str, int]:
    """Return the special ids, from the vocabulary file if there is one."""
    if unscale and sizes.vocab in CPM2_ROWS:
        raise UserError(
            f"--unscale: {sizes.vocab} rows are CPM-2's vocabulary, and CPM-2 was never scaled.\n"
            "Use --unscale only for PPT's converted T5 shards."
        )
    if tokenizer is None:
        return special_ids(sizes.vocab, t5=unscale)
    ids = read_vocabulary(tokenizer)
    if len(ids) != sizes.vocab:
        raise UserError(
            f"--tokenizer {tokenizer}: {len(ids)} lines, but the model has {sizes.vocab} rows."
        )
    return dict(zip(_SPECIAL, (ids["<pad>"], ids["<eod>"], ids["<s>"]), strict=True))


# The place of each tensor of a transformers T5 in CPM-2's Megatron shards.

_ATTENTION = {  # theirs: ours, and the projections that each of their matrices fuses
    "self_attn": ("SelfAttention", {"project": "qkv"}),
    "cross_attn": ("EncDecAttention", {"project_q": "q", "project_kv": "kv"}),
}


def targets(sizes: CPM2Sizes) -> list[Target]:
    """Return all tensors of the transformers model, without aliases of the embeddings."""
    return [
        Target("shared.weight", EMBEDDINGS, (sizes.vocab, sizes.d_model), 0),
        *_stack("encoder", sizes.encoder_layers, sizes),
        *_stack("decoder", sizes.decoder_layers, sizes),
        Target("lm_head.weight", "lm_head.weight", (sizes.vocab, sizes.d_model), 0),
    ]


def _stack(stack: str, layers: int, s: CPM2Sizes) -> Iterator[Target]:
    for i in range(layers):
        source, name = f"{stack}.blocks.{i}", f"{stack}.block.{i}.layer"
        yield from _attention(source, f"{name}.0", "self_attn", s, has_bias=i == 0)
        if stack == "decoder":
            yield from _attention(source, f"{name}.1", "cross_attn", s)
        inner, outer = f"{source}.ff", f"{name}.{2 if stack == 'decoder' else 1}"
        theirs, ours = f"{inner}.dense_relu_dense", f"{outer}.DenseReluDense"
        for part in ("wi_0", "wi_1"):
            yield Target(f"{ours}.{part}.weight", f"{theirs}.{part}.weight", (s.d_ff, s.d_model), 0)
        yield Target(f"{ours}.wo.weight", f"{theirs}.wo.weight", (s.d_model, s.d_ff), 1)
        yield _norm(f"{inner}.layer_norm", f"{outer}.layer_norm", s)
    yield _norm(f"{stack}.final_layernorm", f"{stack}.final_layer_norm", s)


def _attention(
    source: str, name: str, kind: str, s: CPM2Sizes, *, has_bias: bool = False
) -> Iterator[Target]:
    module, fused = _ATTENTION[kind]
    inner, outer = f"{source}.{kind}.{kind}", f"{name}.{module}"
    for matrix, letters in fused.items():
        for piece, letter in enumerate(letters):
            names = f"{outer}.{letter}.weight", f"{inner}.{matrix}.weight"
            yield Target(*names, (s.inner, s.d_model), 0, piece=piece, pieces=len(letters))
    yield Target(f"{outer}.o.weight", f"{inner}.dense.weight", (s.d_model, s.inner), 1)
    if has_bias:  # the first layer's biases serve all layers of its stack
        bias = "relative_attention_bias.weight"
        yield Target(f"{outer}.{bias}", f"{inner}.{bias}", (s.buckets, s.heads), 1)
    yield _norm(f"{source}.{kind}.layer_norm", f"{name}.layer_norm", s)


def _norm(source: str, name: str, s: CPM2Sizes) -> Target:
    return Target(f"{name}.weight", f"{source}.weight", (s.d_model,))
