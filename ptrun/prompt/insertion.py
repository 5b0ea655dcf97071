"""Inserts prompt vectors into rows of tokens: after [CLS], or beside the separators.

IDPG, appendix A.5. Letters: B rows, T tokens, G inserted vectors.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Place = Literal[0, 1, 2, 3, 4]
"""0 after [CLS]; 1 before the first separator; 2 after it and those that follow directly; 3 before
the last separator; 4 after the end, between two added separators."""


@dataclass(frozen=True)
class Insertion:
    """The places of G vectors in rows of T tokens, one place for each row.

    Args:
        at: `[B]` the number of tokens before the vectors.
        order: `[B, T + G]` the index of the token at each position, or T + the index of the vector.
        added: G.
    """

    at: Tensor
    order: Tensor
    added: int

    def weave(self, tokens: Tensor, vectors: Tensor) -> Tensor:
        """Insert `[B, G, ...]` into `[B, T, ...]`: `[B, T + G, ...]`."""
        both = torch.cat([tokens, vectors.to(tokens.dtype)], dim=1)
        rows = torch.arange(len(both), device=both.device)[:, None]
        return both[rows, self.order]

    def moved(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Return the new columns `[K]` of tokens, from their rows and columns `[K]`."""
        return columns + self.added * (columns >= self.at[rows])


def insert(at: Tensor, tokens: int, added: int) -> Insertion:
    """Return the insertion of `added` vectors into rows of `tokens` tokens."""
    column = torch.arange(tokens + added, device=at.device)
    start, end = at[:, None], at[:, None] + added
    behind = torch.where(column < end, column - start + tokens, column - added)
    return Insertion(at, torch.where(column < start, column, behind), added)


def place(position: Place, mask: Tensor, separators: Tensor) -> Tensor:
    """Return the number of tokens before each row's prompt, `[B]`.

    Args:
        position: as in `Place`; a row without separators has its prompt at the end.
        mask: `[B, T]`, True at real tokens.
        separators: `[B, T]`, True at separators.
    """
    length = mask.sum(dim=1)
    if position == 0:
        return torch.ones_like(length)
    if position == 4:
        return length
    first = _first(separators, length)
    if position == 1:
        return first
    if position == 2:
        column = torch.arange(mask.shape[1], device=mask.device)
        return _first((column >= first[:, None]) & ~separators, length)
    last = mask.shape[1] - 1 - separators.flip(1).long().argmax(dim=1)
    return torch.where(separators.any(dim=1), last, length)


def _first(flags: Tensor, default: Tensor) -> Tensor:
    """Return the column of the first True of each row, `[B, T] -> [B]`."""
    return torch.where(flags.any(dim=1), flags.long().argmax(dim=1), default)
