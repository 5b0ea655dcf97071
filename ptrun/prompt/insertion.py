"""Where prompt vectors stand in rows of tokens: after [CLS], or beside the separators.

IDPG, appendix A.5. Letters: B rows, T tokens, G vectors put in.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Place = Literal[0, 1, 2, 3, 4]
"""0 after [CLS]; 1 before the first separator; 2 after it and those right behind it; 3 before the
last separator; 4 after the end, between two separators more."""


@dataclass(frozen=True)
class Insertion:
    """Rows of T tokens that G vectors are put into, each row at a place of its own.

    Args:
        at: `[B]` how many of a row's tokens come before.
        order: `[B, T + G]` which of a row's tokens, or T + which of its vectors, stands where.
        added: G.
    """

    at: Tensor
    order: Tensor
    added: int

    def weave(self, tokens: Tensor, vectors: Tensor) -> Tensor:
        """Put `[B, G, ...]` into `[B, T, ...]`: `[B, T + G, ...]`."""
        both = torch.cat([tokens, vectors.to(tokens.dtype)], dim=1)
        rows = torch.arange(len(both), device=both.device)[:, None]
        return both[rows, self.order]

    def moved(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Return where tokens of these rows and columns, `[K]` each, stand now."""
        return columns + self.added * (columns >= self.at[rows])


def insert(at: Tensor, tokens: int, added: int) -> Insertion:
    """Return the insertion of some vectors into rows of some tokens."""
    column = torch.arange(tokens + added, device=at.device)
    start, end = at[:, None], at[:, None] + added
    behind = torch.where(column < end, column - start + tokens, column - added)
    return Insertion(at, torch.where(column < start, column, behind), added)


def place(position: Place, mask: Tensor, separators: Tensor) -> Tensor:
    """Return how many tokens of each row come before its prompt, `[B]`.

    Args:
        position: as `Place`; a row without separators has its prompt at the end.
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


def _first(found: Tensor, otherwise: Tensor) -> Tensor:
    """Return the first True of each row, `[B, T] -> [B]`."""
    return torch.where(found.any(dim=1), found.long().argmax(dim=1), otherwise)
