"""Where each tensor of a T5 model of transformers is in CPM-2's Megatron shards.

Query, key and value are fused in the shards, and the fused tensor was split over ranks after the
fusion: a rank holds its queries, its keys, its values, one below the other. So each rank's part is
cut into pieces first, and only then are the ranks' pieces put together.
"""

from collections.abc import Iterator
from dataclasses import dataclass

EMBEDDINGS, PROMPT = "word_embeds.weight", "encoder.prompt_embeds.weight"
ALIASES = ("encoder.word_embeds.weight", "decoder.word_embeds.weight")


@dataclass(frozen=True)
class Target:
    """One tensor of the transformers model.

    Args:
        name: its name there; `source`: its name in the shards.
        shape: whole, by the names of `Sizes`.
        axis: where the ranks' parts are joined; None if every rank holds all of it.
        piece: which of `pieces` equal pieces, along the first axis, of a rank's tensor.
    """

    name: str
    source: str
    shape: tuple[str, ...]
    axis: int | None = None
    piece: int = 0
    pieces: int = 1


def targets(encoder_layers: int, decoder_layers: int) -> list[Target]:
    """Return all tensors of the transformers model, aliases of the embeddings left out."""
    return [
        Target("shared.weight", EMBEDDINGS, ("vocab", "d_model"), 0),
        *_stack("encoder", encoder_layers),
        *_stack("decoder", decoder_layers),
        Target("lm_head.weight", "lm_head.weight", ("vocab", "d_model"), 0),
    ]


def _stack(stack: str, layers: int) -> Iterator[Target]:
    for i in range(layers):
        source, name = f"{stack}.blocks.{i}", f"{stack}.block.{i}.layer"
        yield from _self_attention(f"{source}.self_attn", f"{name}.0", has_bias=i == 0)
        if stack == "decoder":
            yield from _cross_attention(f"{source}.cross_attn", f"{name}.1")
        yield from _feed_forward(f"{source}.ff", f"{name}.{2 if stack == 'decoder' else 1}")
    yield _norm(f"{stack}.final_layernorm", f"{stack}.final_layer_norm")


def _self_attention(source: str, name: str, *, has_bias: bool) -> Iterator[Target]:
    inner, outer = f"{source}.self_attn", f"{name}.SelfAttention"
    yield from _pieces(f"{inner}.project.weight", outer, "qkv")
    yield Target(f"{outer}.o.weight", f"{inner}.dense.weight", ("d_model", "inner"), 1)
    if has_bias:  # the first layer's biases serve all layers of its stack
        bias = "relative_attention_bias.weight"
        yield Target(f"{outer}.{bias}", f"{inner}.{bias}", ("buckets", "heads"), 1)
    yield _norm(f"{source}.layer_norm", f"{name}.layer_norm")


def _cross_attention(source: str, name: str) -> Iterator[Target]:
    inner, outer = f"{source}.cross_attn", f"{name}.EncDecAttention"
    yield from _pieces(f"{inner}.project_q.weight", outer, "q")
    yield from _pieces(f"{inner}.project_kv.weight", outer, "kv")
    yield Target(f"{outer}.o.weight", f"{inner}.dense.weight", ("d_model", "inner"), 1)
    yield _norm(f"{source}.layer_norm", f"{name}.layer_norm")


def _feed_forward(source: str, name: str) -> Iterator[Target]:
    inner, outer = f"{source}.dense_relu_dense", f"{name}.DenseReluDense"
    for part in ("wi_0", "wi_1"):
        yield Target(f"{outer}.{part}.weight", f"{inner}.{part}.weight", ("d_ff", "d_model"), 0)
    yield Target(f"{outer}.wo.weight", f"{inner}.wo.weight", ("d_model", "d_ff"), 1)
    yield _norm(f"{source}.layer_norm", f"{name}.layer_norm")


def _pieces(source: str, name: str, letters: str) -> Iterator[Target]:
    """Yield the projections that are fused in one tensor, in their order."""
    for i, letter in enumerate(letters):
        target = f"{name}.{letter}.weight"
        yield Target(target, source, ("inner", "d_model"), 0, piece=i, pieces=len(letters))


def _norm(source: str, name: str) -> Target:
    return Target(f"{name}.weight", f"{source}.weight", ("d_model",))
