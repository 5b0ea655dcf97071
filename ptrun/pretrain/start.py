"""Initial weights of a small model: word vectors from counts, positions from sinusoids.

Neighbours (up to 4 words away) give the kind of a word; words further away in the same document
give its topic, such as praise or blame. From random embeddings a model of this size stays on a
plateau for most of the training and never learns topics. T5 has no position vectors: its encoder
starts with attention to neighbours, its decoder with attention from a sentinel to its gap.
"""

from typing import Any

import torch
from torch import Tensor, nn

from ptrun.pretrain.rows import Row, flattened

_OUTPUT_SCALE = 0.05
_FAR_SHARE = 0.3125  # of the numbers of a word at the start
_NEIGHBOUR, _SAME = 3.0, 5.0  # added to the initial attention scores
_WHOLE = 4096  # words up to which the decomposition is exact
_NEAR, _FAR = range(1, 5), range(5, 31)


def start(model: Any, packed: list[Row], stop: int, scale: float) -> None:
    """Set word embeddings, learned positions and an untied output matrix."""
    words = model.get_input_embeddings().weight
    count, width = words.shape
    far_width = round(width * _FAR_SHARE)
    near, seen = count_vectors(packed, stop, _NEAR, count, width - far_width)
    far, _ = count_vectors(packed, stop, _FAR, count, far_width)
    vectors = torch.cat((near, far), 1)
    output = model.get_output_embeddings()
    with torch.no_grad():
        words[seen] = vectors[seen] * scale
        if output is not None and output.weight is not words:
            output.weight.normal_(std=_OUTPUT_SCALE)
            output.weight[seen] = vectors[seen] * _OUTPUT_SCALE
        for table in _positions(model):
            table.copy_(sinusoids(*table.shape) * scale)
        if model.config.is_encoder_decoder:
            look_around(model.encoder.block[0].layer[0].SelfAttention)
            for block in model.decoder.block:
                look_up(block.layer[1].EncDecAttention)


def look_around(attention: Any) -> None:
    """Let each head of T5's encoder start with attention to one neighbour, left or right."""
    table, far = attention.relative_attention_bias.weight, attention.relative_attention_num_buckets
    for head in range(table.shape[1]):
        distance, right = head // 2 + 1, head % 2
        table[distance + right * far // 2, head] += _NEIGHBOUR


def look_up(attention: Any) -> None:
    """Let T5's cross-attention start with attention to the same token in the encoder.

    So a sentinel finds its gap. With equal query and key matrices, a token has a score of about the
    head size with itself; it is scaled to `_SAME`.
    """
    attention.q.weight.copy_(attention.k.weight * (_SAME / attention.key_value_proj_dim))


def _positions(model: nn.Module) -> list[Tensor]:
    """Return the table of learned absolute positions, if there is one."""
    names = ("position_embeddings.weight", "wpe.weight")
    return [p for name, p in model.named_parameters() if name.endswith(names)]


def sinusoids(count: int, width: int) -> Tensor:
    """Return position vectors `[count, width]` of sines and cosines."""
    rates = 10_000.0 ** (-torch.arange(0, width, 2) / width)
    angles = torch.arange(count)[:, None] * rates
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(1)


def count_vectors(
    packed: list[Row], stop: int, distances: range, words: int, width: int
) -> tuple[Tensor, Tensor]:
    """Return word vectors `[words, width]` of deviation 1 from the SVD of log co-occurrence.

    Words co-occur at these distances within a row; nearer ones count more. The second tensor marks
    the words that occur at all `[words]`.
    """
    flat = flattened(packed, stop)
    row = torch.repeat_interleave(torch.tensor([sum(map(len, r)) + 1 for r in packed]))
    counts = torch.zeros(words * words)
    for distance in distances:
        same = row[:-distance] == row[distance:]
        pair = (flat[:-distance] * words + flat[distance:])[same]
        counts += torch.bincount(pair, minlength=words * words) / distance
    counts = counts.view(words, words)
    counts = counts + counts.T
    total = counts.sum(0)
    expected = total[None] * total[:, None] / total.sum()
    association = torch.log((counts + 1e-9) / (expected + 1e-9)).clamp(min=0)
    if words > _WHOLE:
        left, values, _ = torch.svd_lowrank(association, q=width + 16, niter=4)
    else:
        left, values, _ = torch.linalg.svd(association)
    vectors = left[:, :width] * values[:width].sqrt()
    return vectors / vectors.std(), total > 0
