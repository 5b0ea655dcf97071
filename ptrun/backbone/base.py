"""What goes into a backbone and what comes out: the three injection points as records.

Letters in shapes: B rows, T tokens, H hidden size, E embedding size, P prefix length, K positions
asked for, V vocabulary, S tokens of a decoder.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

_TOGETHER = 2**24  # bytes that are added up at once
Edit = Callable[[Tensor], Tensor]
"""An edit of hidden states, `[B, T, H] -> [B, T, H]`, row by row."""

Site = tuple[str, int]
"""Where an edit goes: (`layer` | `attention` | `cross` | `ffn`, layer index from 0)."""


@dataclass(frozen=True)
class Prefix:
    """Keys and values put before a layer's own, `[B, heads, P, head size]`.

    `mask [B, P]` is False where a row has no prefix vector there; None means all are there.
    """

    key: Tensor
    value: Tensor
    mask: Tensor | None = None


@dataclass(frozen=True)
class Positions:
    """Cells of a `[B, T]` grid, in the order their outputs are wanted: two `[K]` index tensors."""

    rows: Tensor
    columns: Tensor


@dataclass(frozen=True)
class DecoderInput:
    """What the decoder of an encoder-decoder reads, S tokens; `BackboneInput` is its encoder's.

    Args:
        mask: `[B, S]` bool, True at real tokens.
        ids, embeddings: `[B, S]` or `[B, S, E]`; exactly one is given.
        prefixes: of its self-attention, one entry a layer.
        cross: prefixes put before what its cross-attention reads of the encoder.
        edits: changes of its hidden states by site.
    """

    mask: Tensor
    ids: Tensor | None = None
    embeddings: Tensor | None = None
    prefixes: tuple[Prefix | None, ...] | None = None
    cross: tuple[Prefix | None, ...] | None = None
    edits: Mapping[Site, Edit] | None = None


@dataclass(frozen=True)
class BackboneInput:
    """One forward pass: what is read, what is injected, what is asked for.

    Args:
        mask: `[B, T]` bool, True at real tokens.
        ids: `[B, T]` token ids; exactly one of `ids` and `embeddings` is given.
        embeddings: `[B, T, E]` raw word embeddings; the model adds positions, types and LayerNorm.
        types: `[B, T]` segment ids, or None for zeros; 1 at the blank of a blank infiller. Families
            without either ignore them.
        shift: `[B]` how far the position ids of each row start after the usual first one; models
            with relative positions only have no such ids.
        prefixes: one entry a layer; None where a layer has no prefix, which is not a zero prefix.
        edits: changes of hidden states by site.
        keys: `[B]` int64 dropout keys, one a row; None switches all dropout off.
        hidden_at, pooled_at, logits_at: positions whose last hidden states, pooled states and
            language-model logits are wanted; the decoder's positions if there is a decoder input.
        decoder: of an encoder-decoder; without it only its encoder runs. Of a blank infiller what
            is written in the blank; without it the text alone is read.
    """

    mask: Tensor
    ids: Tensor | None = None
    embeddings: Tensor | None = None
    types: Tensor | None = None
    shift: Tensor | None = None
    prefixes: tuple[Prefix | None, ...] | None = None
    edits: Mapping[Site, Edit] | None = None
    keys: Tensor | None = None
    hidden_at: Positions | None = None
    pooled_at: Positions | None = None
    logits_at: Positions | None = None
    decoder: DecoderInput | None = None


@dataclass(frozen=True)
class BackboneOutput:
    """What was asked for, and nothing else: `[K, H]`, `[K, H]` and `[K, V]`."""

    hidden: Tensor | None = None
    pooled: Tensor | None = None
    logits: Tensor | None = None


@dataclass(frozen=True)
class Shape:
    """The sizes of a backbone, known from its configuration alone.

    Args:
        hidden_size, embedding_size: H and E.
        layers: of the encoder, or of the only stack.
        heads: of keys and values, which a prefix has; grouped queries share them.
        head_size: width of one head; heads x head_size need not be H.
        positions: longest input in tokens, soft prompts and position shifts included.
        dropout: of hidden states, in training.
        decoder_layers: of an encoder-decoder; else 0.
    """

    hidden_size: int
    embedding_size: int
    layers: int
    heads: int
    head_size: int
    positions: int
    dropout: float
    decoder_layers: int = 0


def picked(hidden: Tensor, at: Positions | None) -> Tensor | None:
    """Return the states at positions, `[B, T, H] -> [K, H]`."""
    return None if at is None else hidden[at.rows, at.columns]


def checksum(model: nn.Module) -> int:
    """Return a number that changes when a bit of a parameter or buffer does (in practice).

    It is a sum of bytes weighted by tensor, at memory speed: changes that cancel within one tensor
    would pass. Tensors are read in pieces: torch sums bytes as whole numbers of 8 bytes each.
    """
    total = 0
    for index, tensor in enumerate([*model.parameters(), *model.buffers()], start=1):
        bits = tensor.detach().contiguous().view(torch.uint8)
        total += (2 * index + 1) * _sum(bits) + index * bits.numel()
    return total


def _sum(bits: Tensor) -> int:
    """Add up bytes some at a time: torch makes numbers of 8 bytes of them first."""
    parts = torch.split(bits.flatten(), _TOGETHER)
    return sum([int(part.sum(dtype=torch.int64)) for part in parts])
