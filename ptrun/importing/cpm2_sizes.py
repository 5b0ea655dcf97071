"""The sizes of a CPM-2 checkpoint, read from its tensors, and their config.json."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ptrun.converting.shards import check_matrices, layer_count

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
class Sizes:
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


@dataclass(frozen=True)
class SpecialIds:
    """The special token ids of a configuration."""

    pad: int
    eos: int
    start: int


def read_sizes(shapes: Shapes, ranks: int) -> Sizes:
    """Return the sizes of a model, from the shapes of one rank's tensors.

    Raises:
        UserError: one of the matrices is missing.
    """
    check_matrices(
        shapes,
        (EMBEDDINGS, _BIAS, _PROJECT, _FEED_FORWARD),
        "these are not CPM-2 shards",
        "the layout of CPM-2 and PPT: encoder.blocks.*, decoder.blocks.*, word_embeds",
    )
    (rows, d_model), (buckets, heads) = shapes[EMBEDDINGS], shapes[_BIAS]
    return Sizes(
        vocab=rows * ranks,
        d_model=d_model,
        inner=shapes[_PROJECT][0] * ranks // 3,
        d_ff=shapes[_FEED_FORWARD][0] * ranks,
        heads=heads * ranks,
        buckets=buckets,
        encoder_layers=layer_count(shapes, "encoder.blocks"),
        decoder_layers=layer_count(shapes, "decoder.blocks"),
    )


def special_ids(rows: int, *, t5: bool) -> SpecialIds:
    """Return the special ids of a vocabulary, which its size identifies."""
    if t5 or rows in T5_ROWS:
        return SpecialIds(pad=0, eos=1, start=0)
    return SpecialIds(pad=5, eos=8 if rows == CPM2_ROWS[1] else 7, start=1)


def model_config(sizes: Sizes, special: SpecialIds, dtype: str) -> dict[str, Any]:
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
        "pad_token_id": special.pad,
        "eos_token_id": special.eos,
        "decoder_start_token_id": special.start,
    }
