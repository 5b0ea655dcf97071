"""Rendered pieces in one segment: with a space at the border, or with a separator as text."""

from collections.abc import Sequence
from dataclasses import replace

from ptrun.prompt.rendering import Piece


def one_segment(pieces: Sequence[Piece]) -> list[Piece]:
    """Return pieces without a border; a space takes its place."""
    merged: list[Piece] = []
    for before, piece in zip([*pieces[:1], *pieces], pieces, strict=False):
        opens = piece.segment > before.segment
        merged.append(replace(piece, segment=0, spaced=piece.spaced or opens))
    return merged


def separated(pieces: Sequence[Piece]) -> list[Piece]:
    """Return pieces without a border; a separator takes its place."""
    sides = [[p for p in pieces if p.segment == side] for side in (0, 1)]
    if not sides[1]:
        return list(pieces)
    merged, at = one_segment(pieces), len(sides[0])
    return [*merged[:at], Piece("separator"), *merged[at:]]
