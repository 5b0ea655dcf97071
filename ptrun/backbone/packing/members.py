"""The packed tokens of each member, whose rows follow each other in a batch."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ptrun.backbone.base import on_device
from ptrun.backbone.packing.packed import Packing


@dataclass(frozen=True)
class Members:
    """The packed tokens of each member.

    Args:
        tokens: their origin, one by member.
        places: their indices among the tokens, one by member.
        back: `[N]` order that undoes the concatenation of all members' tokens.
    """

    tokens: Sequence[Packing]
    places: Sequence[Tensor]
    back: Tensor

    def split(self, x: Tensor) -> list[Tensor]:
        """Return the members' tokens `[1, n, ...]` of tokens `[1, N, ...]`."""
        return [x.index_select(1, own) for own in self.places]

    def joined(self, parts: Sequence[Tensor]) -> Tensor:
        """Return all tokens `[1, N, ...]` in their order, from those of each member."""
        return torch.cat(list(parts), dim=1).index_select(1, self.back)


def members_of(tokens: Packing, rows: Sequence[int], counts: Sequence[int]) -> Members:
    """Return the tokens of members that have so many rows each, and so many of the tokens."""
    device = tokens.rows.device
    owners = on_device([owner for owner, n in enumerate(rows) for _ in range(n)], device)
    order = owners[tokens.rows].argsort(stable=True)
    places = torch.split(order, list(counts))
    return Members([tokens.only(own) for own in places], places, order.argsort())
