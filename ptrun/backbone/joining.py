"""Inputs of several members as one batch of the frozen backbone, and its output split again.

Members may differ in what they inject: input vectors, prefixes, edits and low-rank updates share a
pass. What one of them lacks is filled with what changes nothing in its rows.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

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
    Updates,
)

Embed = Callable[[Tensor], Tensor]
"""Returns raw word embeddings, `[B, T] -> [B, T, E]`."""


def join(parts: Collection[BackboneInput], embed: Embed | None = None) -> BackboneInput:
    """Return the members' inputs as one, with rows padded to the longest of all.

    `embed` is needed where some members give tokens and others embeddings.

    >>> import torch
    >>> from ptrun.backbone.base import BackboneInput
    >>> from ptrun.backbone.joining import join
    >>> masks = [torch.ones(1, width, dtype=torch.bool) for width in (2, 3)]
    >>> join([BackboneInput(mask, ids=mask.long()) for mask in masks]).ids.tolist()
    [[1, 1, 0], [1, 1, 1]]
    """
    if len(parts) == 1:
        return next(iter(parts))
    if embed is not None and any(part.embeddings is not None for part in parts):
        parts = [
            part if part.ids is None else replace(part, ids=None, embeddings=embed(part.ids))
            for part in parts
        ]
    updated = any(part.updates for part in parts)
    masks = [part.mask for part in parts]
    rows = [len(mask) for mask in masks]
    lengths = [part.lengths for part in parts]
    decoders = [part.decoder for part in parts if part.decoder is not None]
    assert len(decoders) in (0, len(rows)), "members differ in whether they use the decoder"
    decoder = None
    if decoders:
        cross = _prefixes([decoder.cross for decoder in decoders], rows)
        decoder = DecoderInput(**_half(decoders, rows), cross=cross)
    return BackboneInput(
        **_half(parts, rows),
        types=_optional([p.types for p in parts], max(m.shape[1] for m in masks), masks),
        lengths=None if None in lengths else [n for member in lengths for n in member or ()],
        shift=_optional([p.shift for p in parts], like=[mask[:, 0] for mask in masks]),
        updates=[
            replace(update, reads=sum(len(at.rows) for at in part.requested))
            for part in parts
            for update in part.updates or ([Updates(len(part.mask), {})] if updated else ())
        ],
        keys=_optional([p.keys for p in parts]),
        decoder=decoder,
        hidden_at=_positions([p.hidden_at for p in parts], rows),
        pooled_at=_positions([p.pooled_at for p in parts], rows),
        logits_at=_positions([p.logits_at for p in parts], rows),
    )


def split(output: BackboneOutput, parts: Collection[BackboneInput]) -> list[BackboneOutput]:
    """Return each member's own output, of inputs that were joined."""
    hidden = _split(output.hidden, [p.hidden_at for p in parts])
    pooled = _split(output.pooled, [p.pooled_at for p in parts])
    logits = _split(output.logits, [p.logits_at for p in parts])
    return [BackboneOutput(*three) for three in zip(hidden, pooled, logits, strict=True)]


def _half(parts: Collection[Any], rows: Sequence[int]) -> dict[str, Any]:
    """Return what encoder and decoder inputs share."""
    width, grids = max(part.mask.shape[1] for part in parts), ("mask", "ids", "embeddings")
    tokens = {name: _optional([getattr(part, name) for part in parts], width) for name in grids}
    prefixes = _prefixes([part.prefixes for part in parts], rows)
    return {**tokens, "prefixes": prefixes, "edits": _edits([part.edits for part in parts], rows)}


def _optional(
    tensors: Sequence[Tensor | None],
    width: int | None = None,
    like: Sequence[Tensor] | None = None,
) -> Tensor | None:
    """Concatenate tensors that all members have or none; zeros pad the second axis to `width`.

    With `like`, a member that lacks one has zeros of its shape, which change nothing.
    """
    if like is not None and any(tensor is not None for tensor in tensors):
        pairs = zip(tensors, like, strict=True)
        tensors = [torch.zeros_like(m, dtype=torch.long) if t is None else t for t, m in pairs]
    present = [tensor for tensor in tensors if tensor is not None]
    assert len(present) in (0, len(tensors)), "members differ in what they give the backbone"
    if width is not None:
        pads = [(*(0, 0) * (tensor.dim() - 2), 0, width - tensor.shape[1]) for tensor in present]
        present = [functional.pad(t, pad) for t, pad in zip(present, pads, strict=True)]
    return torch.cat(present) if present else None


def _positions(positions: Sequence[Positions | None], rows: Sequence[int]) -> Positions | None:
    """Join positions; those of a member move by the rows of the members before it."""
    starts = [sum(rows[:index]) for index in range(len(rows))]
    pairs = [(at, start) for at, start in zip(positions, starts, strict=True) if at is not None]
    if not pairs:
        return None
    return Positions(
        torch.cat([at.rows + start for at, start in pairs]),
        torch.cat([at.columns for at, _ in pairs]),
    )


def _split(values: Tensor | None, positions: Sequence[Positions | None]) -> list[Tensor | None]:
    if values is None:
        return [None] * len(positions)
    pieces = iter(torch.split(values, [len(at.rows) for at in positions if at is not None]))
    return [None if at is None else next(pieces) for at in positions]


def _prefixes(
    members: Sequence[tuple[Prefix | None, ...] | None], rows: Sequence[int]
) -> tuple[Prefix | None, ...] | None:
    layers = max((len(prefixes) for prefixes in members if prefixes is not None), default=0)
    if not layers:
        return None
    return tuple(_join_prefix([m[i] if m else None for m in members], rows) for i in range(layers))


def _join_prefix(prefixes: Sequence[Prefix | None], rows: Sequence[int]) -> Prefix | None:
    """Pad the prefixes of a layer on the left; rows of a member without one attend to none."""
    present = [prefix for prefix in prefixes if prefix is not None]
    if not present:
        return None
    length = max(prefix.key.shape[2] for prefix in present)
    padded = [_pad(p, present[0], length, count) for p, count in zip(prefixes, rows, strict=True)]
    plain = all(p is not None and p.mask is None and p.key.shape[2] == length for p in prefixes)
    return Prefix(
        torch.cat([p.key for p in padded]),
        torch.cat([p.value for p in padded]),
        None if plain else torch.cat([p.mask for p in padded if p.mask is not None]),
    )


def _pad(prefix: Prefix | None, like: Prefix, length: int, rows: int) -> Prefix:
    """Pad a prefix on the left to `length`, with a mask; None counts as a prefix of length 0."""
    _, heads, _, size = like.key.shape
    empty = like.key.new_empty(rows, heads, 0, size)
    key, value = (empty, empty) if prefix is None else (prefix.key, prefix.value)
    seen = prefix.mask if prefix else None
    if seen is None:
        seen = key.new_ones(rows, key.shape[2], dtype=torch.bool)
    missing = length - key.shape[2]
    pad = (0, 0, missing, 0)
    return Prefix(
        functional.pad(key, pad),
        functional.pad(value, pad),
        functional.pad(seen, (missing, 0)),
    )


def _edits(
    members: Sequence[Mapping[Site, Edit] | None], rows: Sequence[int]
) -> dict[Site, Edit] | None:
    sites = {site for edits in members for site in edits or {}}
    if not sites:
        return None

    def edit(hidden: Tensor, site: Site) -> Tensor:
        changes = [(edits or {}).get(site) for edits in members]
        pieces = zip(changes, torch.split(hidden, list(rows)), strict=True)
        return torch.cat([change(piece) if change else piece for change, piece in pieces])

    return {site: partial(edit, site=site) for site in sites}
