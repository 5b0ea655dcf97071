"""The place of each tensor of a transformers T5 in CPM-2's Megatron shards."""

from collections.abc import Iterator

from ptrun.converting.target import Target
from ptrun.importing.cpm2_sizes import EMBEDDINGS, Sizes

_ATTENTION = {  # theirs: ours, and the projections that each of their matrices fuses
    "self_attn": ("SelfAttention", {"project": "qkv"}),
    "cross_attn": ("EncDecAttention", {"project_q": "q", "project_kv": "kv"}),
}


def targets(sizes: Sizes) -> list[Target]:
    """Return all tensors of the transformers model, without aliases of the embeddings."""
    return [
        Target("shared.weight", EMBEDDINGS, (sizes.vocab, sizes.d_model), 0),
        *_stack("encoder", sizes.encoder_layers, sizes),
        *_stack("decoder", sizes.decoder_layers, sizes),
        Target("lm_head.weight", "lm_head.weight", (sizes.vocab, sizes.d_model), 0),
    ]


def _stack(stack: str, layers: int, s: Sizes) -> Iterator[Target]:
    for i in range(layers):
        source, name = f"{stack}.blocks.{i}", f"{stack}.block.{i}.layer"
        yield from _attention(source, f"{name}.0", "self_attn", s, has_bias=i == 0)
        if stack == "decoder":
            yield from _attention(source, f"{name}.1", "cross_attn", s)
        yield from _feed_forward(f"{source}.ff", f"{name}.{2 if stack == 'decoder' else 1}", s)
    yield _norm(f"{stack}.final_layernorm", f"{stack}.final_layer_norm", s)


def _attention(
    source: str, name: str, kind: str, s: Sizes, *, has_bias: bool = False
) -> Iterator[Target]:
    module, fused = _ATTENTION[kind]
    inner, outer = f"{source}.{kind}.{kind}", f"{name}.{module}"
    for matrix, letters in fused.items():
        yield from _pieces(f"{inner}.{matrix}.weight", outer, letters, s)
    yield Target(f"{outer}.o.weight", f"{inner}.dense.weight", (s.d_model, s.inner), 1)
    if has_bias:  # the first layer's biases serve all layers of its stack
        bias = "relative_attention_bias.weight"
        yield Target(f"{outer}.{bias}", f"{inner}.{bias}", (s.buckets, s.heads), 1)
    yield _norm(f"{source}.{kind}.layer_norm", f"{name}.layer_norm", s)


def _feed_forward(source: str, name: str, s: Sizes) -> Iterator[Target]:
    inner, outer = f"{source}.dense_relu_dense", f"{name}.DenseReluDense"
    for part in ("wi_0", "wi_1"):
        yield Target(f"{outer}.{part}.weight", f"{inner}.{part}.weight", (s.d_ff, s.d_model), 0)
    yield Target(f"{outer}.wo.weight", f"{inner}.wo.weight", (s.d_model, s.d_ff), 1)
    yield _norm(f"{source}.layer_norm", f"{name}.layer_norm", s)


def _pieces(source: str, name: str, letters: str, s: Sizes) -> Iterator[Target]:
    """Yield the projections that one tensor fuses, in their order."""
    for i, letter in enumerate(letters):
        target = f"{name}.{letter}.weight"
        yield Target(target, source, (s.inner, s.d_model), 0, piece=i, pieces=len(letters))


def _norm(source: str, name: str, s: Sizes) -> Target:
    return Target(f"{name}.weight", f"{source}.weight", (s.d_model,))
