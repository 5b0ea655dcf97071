"""Lay the inputs of several members along the batch axis, and cut the output apart again.

One frozen backbone answers for all members in one pass; each reads only its own rows.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from ptrun.backbone.base import (
    BackboneInput,
    BackboneOutput,
    DecoderInput,
    Edit,
    Positions,
    Prefix,
    Site,
)


@dataclass(frozen=True)
class Joined:
    """One input for the backbone, and how many cells of each kind every member asked for."""

    given: BackboneInput
    parts: Sequence[BackboneInput]

    def split(self, output: BackboneOutput) -> list[BackboneOutput]:
        """Return each member's own output."""
        hidden = _split(output.hidden, [p.hidden_at for p in self.parts])
        pooled = _split(output.pooled, [p.pooled_at for p in self.parts])
        logits = _split(output.logits, [p.logits_at for p in self.parts])
        return [BackboneOutput(*three) for three in zip(hidden, pooled, logits, strict=True)]


def join(parts: Sequence[BackboneInput]) -> Joined:
    """Return the members' inputs as one; rows are padded to the longest of all."""
    if len(parts) == 1:
        return Joined(parts[0], parts)
    width = max(part.mask.shape[1] for part in parts)
    rows = [part.mask.shape[0] for part in parts]
    given = BackboneInput(
        mask=_rows([p.mask for p in parts], width),
        ids=_optional(_rows, [p.ids for p in parts], width),
        embeddings=_optional(_rows, [p.embeddings for p in parts], width),
        types=_optional(_rows, [p.types for p in parts], width),
        shift=_optional(_plain, [p.shift for p in parts], width),
        keys=_optional(_plain, [p.keys for p in parts], width),
        prefixes=_prefixes([p.prefixes for p in parts], rows),
        edits=_edits([p.edits for p in parts], rows),
        decoder=_decoder([p.decoder for p in parts], rows),
        hidden_at=_positions([p.hidden_at for p in parts], rows),
        pooled_at=_positions([p.pooled_at for p in parts], rows),
        logits_at=_positions([p.logits_at for p in parts], rows),
    )
    return Joined(given, parts)


def _decoder(parts: Sequence[DecoderInput | None], rows: Sequence[int]) -> DecoderInput | None:
    """Join what the decoders read; either all members have one or none has."""
    present = [part for part in parts if part is not None]
    assert len(present) in (0, len(parts)), "members differ in whether they use the decoder"
    if not present:
        return None
    width = max(part.mask.shape[1] for part in present)
    return DecoderInput(
        mask=_rows([p.mask for p in present], width),
        ids=_optional(_rows, [p.ids for p in present], width),
        embeddings=_optional(_rows, [p.embeddings for p in present], width),
        prefixes=_prefixes([p.prefixes for p in present], rows),
        cross=_prefixes([p.cross for p in present], rows),
        edits=_edits([p.edits for p in present], rows),
    )


def _optional(
    combine: Callable[[list[Tensor], int], Tensor], tensors: Sequence[Tensor | None], width: int
) -> Tensor | None:
    """Combine what every member gives; members of one population give the same things."""
    present = [tensor for tensor in tensors if tensor is not None]
    assert len(present) in (0, len(tensors)), "members differ in what they give the backbone"
    return combine(present, width) if present else None


def _rows(tensors: list[Tensor], width: int) -> Tensor:
    return torch.cat([_widen(tensor, width) for tensor in tensors])


def _widen(tensor: Tensor, width: int) -> Tensor:
    """Pad the token axis, the second, on the right with zeros."""
    missing = width - tensor.shape[1]
    if not missing:
        return tensor
    return functional.pad(tensor, (0, 0) * (tensor.dim() - 2) + (0, missing))


def _plain(tensors: list[Tensor], _width: int) -> Tensor:
    return torch.cat(tensors)


def _positions(asked: Sequence[Positions | None], rows: Sequence[int]) -> Positions | None:
    if all(at is None for at in asked):
        return None
    starts = [sum(rows[:index]) for index in range(len(rows))]
    pairs = [(at, start) for at, start in zip(asked, starts, strict=True) if at is not None]
    return Positions(
        torch.cat([at.rows + start for at, start in pairs]),
        torch.cat([at.columns for at, _ in pairs]),
    )


def _split(values: Tensor | None, asked: Sequence[Positions | None]) -> list[Tensor | None]:
    if values is None:
        return [None] * len(asked)
    pieces = iter(torch.split(values, [len(at.rows) for at in asked if at is not None]))
    return [None if at is None else next(pieces) for at in asked]


def _prefixes(
    given: Sequence[tuple[Prefix | None, ...] | None], rows: Sequence[int]
) -> tuple[Prefix | None, ...] | None:
    counts = {len(prefixes) for prefixes in given if prefixes is not None}
    if not counts:
        return None
    layers = [[g[index] if g else None for g in given] for index in range(counts.pop())]
    return tuple(_join_prefix(layer, rows) for layer in layers)


def _join_prefix(prefixes: Sequence[Prefix | None], rows: Sequence[int]) -> Prefix | None:
    """Align prefixes at the text; rows of a member without one see nothing there."""
    present = [prefix for prefix in prefixes if prefix is not None]
    if not present:
        return None
    length = max(prefix.key.shape[2] for prefix in present)
    filled = [
        _fill(prefix, present[0], length, count)
        for prefix, count in zip(prefixes, rows, strict=True)
    ]
    plain = all(p is not None and p.mask is None and p.key.shape[2] == length for p in prefixes)
    return Prefix(
        torch.cat([p.key for p in filled]),
        torch.cat([p.value for p in filled]),
        None if plain else torch.cat([p.mask for p in filled if p.mask is not None]),
    )


def _fill(prefix: Prefix | None, like: Prefix, length: int, rows: int) -> Prefix:
    """Pad a prefix on the left to a length, or make an unseen one."""
    _, heads, _, size = like.key.shape
    if prefix is None:
        nothing = like.key.new_zeros(rows, heads, length, size)
        unseen = torch.zeros(rows, length, dtype=torch.bool, device=nothing.device)
        return Prefix(nothing, nothing, unseen)
    missing = length - prefix.key.shape[2]
    seen = prefix.mask
    if seen is None:
        seen = prefix.key.new_ones(rows, prefix.key.shape[2], dtype=torch.bool)
    pad = (0, 0, missing, 0)
    return Prefix(
        functional.pad(prefix.key, pad),
        functional.pad(prefix.value, pad),
        functional.pad(seen, (missing, 0)),
    )


def _edits(
    given: Sequence[Mapping[Site, Edit] | None], rows: Sequence[int]
) -> dict[Site, Edit] | None:
    sites = {site for edits in given for site in edits or {}}
    if not sites:
        return None
    return {site: _join_edit([(e or {}).get(site) for e in given], rows) for site in sites}


def _join_edit(edits: Sequence[Edit | None], rows: Sequence[int]) -> Edit:
    def edit(hidden: Tensor) -> Tensor:
        pieces = torch.split(hidden, list(rows))
        edited = [own(piece) if own else piece for own, piece in zip(edits, pieces, strict=True)]
        return torch.cat(edited)

    return edit
