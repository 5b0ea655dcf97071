"""The input and output of a backbone, with its injection points, as records.

Letters in shapes: B rows, T tokens, H hidden size, E embedding size, P prefix length, K requested
positions, V vocabulary, S tokens of a decoder.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

Edit = Callable[[Tensor], Tensor]
"""An edit of hidden states, `[B, T, H] -> [B, T, H]`, row by row."""

Site = tuple[str, int]
"""The place of an edit: (`layer` | `attention` | `cross` | `ffn`, layer index from 0)."""


@dataclass(frozen=True)
class Prefix:
    """Keys and values before those of a layer, `[B, heads, P, head size]`.

    `mask [B, P]` is False where a row has no prefix vector; None means that none is missing.
    """

    key: Tensor
    value: Tensor
    mask: Tensor | None = None


@dataclass(frozen=True)
class Positions:
    """Requested cells of a `[B, T]` grid, in the order of the outputs: two `[K]` index tensors."""

    rows: Tensor
    columns: Tensor


@dataclass(frozen=True)
class DecoderInput:
    """The S tokens that a decoder reads; `BackboneInput` holds those of the encoder.

    Args:
        mask: `[B, S]` bool, True at real tokens.
        ids, embeddings: `[B, S]` or `[B, S, E]`; exactly one is set.
        prefixes: prefixes of the self-attention, one entry per layer.
        cross: prefixes of the cross-attention, one entry per layer.
        edits: changes of hidden states by site.
    """

    mask: Tensor
    ids: Tensor | None = None
    embeddings: Tensor | None = None
    prefixes: tuple[Prefix | None, ...] | None = None
    cross: tuple[Prefix | None, ...] | None = None
    edits: Mapping[Site, Edit] | None = None


@dataclass(frozen=True)
class Update:
    """A low-rank update of a linear map: `scale * up(down(drop(x)))` joins its output.

    Args:
        down, up: `[r, in]` and `[out, r]`.
        scale: alpha / r.
        dropout: probability that a cell of x is dropped in training.
        site: number of this dropout in the backbone.
        cut: whether each rank of a tensor-parallel group has a part of x, and of `down`.
    """

    down: Tensor
    up: Tensor
    scale: float
    dropout: float
    site: int
    cut: bool = False


@dataclass(frozen=True)
class Updates:
    """The updates of a number of consecutive rows, by the path of a linear map in the model.

    `reads` is the number of positions that are requested in these rows; a single member needs none.
    """

    rows: int
    maps: Mapping[str, Update]
    reads: int = 0


@dataclass(frozen=True)
class BackboneInput:
    """One forward pass: the tokens, the injections, and the requested outputs.

    Args:
        mask: `[B, T]` bool, True at real tokens.
        lengths: B numbers on the host, the tokens of each row up to its last real one. None makes
            the host wait for the mask where it needs them.
        ids: `[B, T]` token ids; exactly one of `ids` and `embeddings` is set.
        embeddings: `[B, T, E]` raw word embeddings; the model adds positions, types and LayerNorm.
        types: `[B, T]` segment ids, or None for zeros; 1 at the blank of a blank infiller. Families
            without either ignore them.
        shift: `[B]` offset of each row's position ids; families with only relative positions
            ignore it.
        prefixes: one entry per layer; None means no prefix, which differs from a zero prefix.
        edits: changes of hidden states by site.
        updates: low-rank updates of linear maps in both stacks, in the order of the rows; none, or
            for all rows.
        keys: `[B]` int64 dropout keys, one per row; None switches all dropout off.
        hidden_at, pooled_at, logits_at: positions of the requested last hidden states, pooled
            states and language-model logits; the decoder's positions if there is a decoder input.
        decoder: input of the decoder, or the answer in the blank of a blank infiller. Without it
            only the encoder runs, or only the text is read.

    >>> import torch
    >>> from ptrun.backbone.base import BackboneInput, Positions
    >>> ids, at = torch.tensor([[2, 7, 3]]), Positions(torch.tensor([0]), torch.tensor([2]))
    >>> batch = BackboneInput(torch.ones_like(ids, dtype=torch.bool), ids=ids, hidden_at=at)
    >>> len(batch.requested)
    1
    """

    mask: Tensor
    lengths: Sequence[int] | None = None
    ids: Tensor | None = None
    embeddings: Tensor | None = None
    types: Tensor | None = None
    shift: Tensor | None = None
    prefixes: tuple[Prefix | None, ...] | None = None
    edits: Mapping[Site, Edit] | None = None
    updates: Sequence[Updates] = ()
    keys: Tensor | None = None
    hidden_at: Positions | None = None
    pooled_at: Positions | None = None
    logits_at: Positions | None = None
    decoder: DecoderInput | None = None

    def __post_init__(self) -> None:
        assert self.lengths is None or max(self.lengths) <= self.mask.shape[1], "lengths of others"

    @property
    def requested(self) -> list[Positions]:
        """The requested positions: of hidden states, pooled states and logits."""
        return [at for at in (self.hidden_at, self.pooled_at, self.logits_at) if at is not None]


@dataclass(frozen=True)
class BackboneOutput:
    """The requested outputs and no others: `[K, H]`, `[K, H]` and `[K, V]`.

    >>> import torch
    >>> from ptrun.backbone.base import BackboneOutput
    >>> BackboneOutput(logits=torch.ones(2, 3)).map(torch.sum).tensors
    [tensor(6.)]
    """

    hidden: Tensor | None = None
    pooled: Tensor | None = None
    logits: Tensor | None = None

    @property
    def tensors(self) -> list[Tensor]:
        """The outputs that were requested."""
        return [t for t in (self.hidden, self.pooled, self.logits) if t is not None]

    def map(self, change: Callable[[Tensor], Tensor]) -> "BackboneOutput":
        """Return the output with each of its tensors changed."""
        parts = (self.hidden, self.pooled, self.logits)
        return BackboneOutput(*(None if t is None else change(t) for t in parts))


@dataclass(frozen=True)
class Shape:
    """The sizes of a backbone, computed from its configuration.

    Args:
        hidden_size, embedding_size: H and E.
        layers: number of layers of the encoder, or of the only stack.
        heads: number of key-value heads; grouped queries share them.
        head_size: width of one head; heads x head_size can differ from H.
        positions: longest input in tokens, with soft prompts and position shifts.
        dropout: dropout probability of hidden states in training.
        decoder_layers: number of decoder layers, 0 without a decoder.
    """

    hidden_size: int
    embedding_size: int
    layers: int
    heads: int
    head_size: int
    positions: int
    dropout: float
    decoder_layers: int = 0


def on_device(values: Any, device: torch.device, dtype: torch.dtype = torch.long) -> Tensor:
    """Return numbers as a tensor on a device."""
    return moved(torch.tensor(values, dtype=dtype), device)


def moved(tensor: Tensor, device: torch.device) -> Tensor:
    """Move a tensor to a device; from pinned memory to a GPU, so that the host need not wait."""
    if torch.device(device).type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


_ALIGNED = 16  # bytes


def as_bytes(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return the bytes of tensors of the host, which end where another may begin."""
    parts = [tensor.contiguous().view(-1).view(torch.uint8) for tensor in tensors]
    return [nn.functional.pad(part, (0, -len(part) % _ALIGNED)) for part in parts]


def tensors_of(content: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Return the tensors in joined bytes, without a copy; `like` has types and shapes."""
    tensors, start = [], 0
    for tensor in like:
        part = content[start : start + tensor.nbytes]
        tensors.append(part.view(tensor.dtype).view(tensor.shape))
        start += tensor.nbytes + -tensor.nbytes % _ALIGNED
    return tensors


def checksum(model: nn.Module) -> int:
    """Return a number that changes when a bit of a parameter or buffer does (in practice).

    It is a sum of words of 8 bytes, weighted by tensor. Changes that cancel within one tensor go
    unnoticed. The `weight` of a quantized map has no numbers; its codes and scales are buffers.
    """
    tensors = [t for t in (*model.parameters(), *model.buffers()) if not t.is_meta]
    sums = [_words(tensor.detach()).sum() for tensor in tensors]
    totals: list[int] = torch.stack(sums).tolist() if sums else []  # the host waits once
    return sum(
        (2 * index + 1) * total + index * tensor.numel()
        for index, (tensor, total) in enumerate(zip(tensors, totals, strict=True), start=1)
    )


def _words(tensor: Tensor) -> Tensor:
    """Return the bytes of a tensor as integers of 8 bytes, without a copy where they are aligned.

    Words add up as they are; bytes are converted to 8 bytes each first, and the freed blocks
    fragment the heap: up to 2 GiB for a model of 135 million parameters.
    """
    bits = tensor.flatten().contiguous().view(torch.uint8)
    if bits.storage_offset() % 8 or len(bits) % 8:
        bits = nn.functional.pad(bits, (0, -len(bits) % 8)).clone()
    return bits.view(torch.int64)
