"""A rank of a tensor-parallel group, and how tensors are split and gathered over the group."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed
from torch import Tensor


@dataclass(frozen=True)
class Division:
    """One of `size` ranks that hold a model together.

    Args:
        rank: rank in the group, from 0.
        size: number of ranks in the group.
        group: the process group.
        device: device of the rank's part.
    """

    rank: int
    size: int
    group: Any
    device: str

    def own(self, whole: Tensor, axis: int) -> Tensor:
        """Return this rank's part of a replicated tensor; backward gathers the whole gradient."""
        part: Tensor = _exchange(_part, _gather, whole, axis, self)
        return part

    def whole(self, own: Tensor, axis: int) -> Tensor:
        """Return the tensor gathered from all ranks; backward keeps this rank's gradient."""
        whole: Tensor = _exchange(_gather, _part, own, axis, self)
        return whole

    def first(self, width: int) -> int:
        """Return where this rank's part begins if each part is `width` wide."""
        return self.rank * width


class _Exchange(torch.autograd.Function):
    """Applies `there` to a tensor, and `back` to its gradient in the backward pass."""

    @staticmethod
    def forward(ctx: Any, there: Any, back: Any, x: Tensor, axis: int, division: Division) -> Any:
        ctx.back, ctx.axis, ctx.division = back, axis, division
        return there(x, axis, division)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return None, None, ctx.back(gradients[0], ctx.axis, ctx.division), None, None


_exchange: Any = _Exchange.apply


def _part(whole: Tensor, axis: int, division: Division) -> Tensor:
    width = whole.shape[axis] // division.size
    return whole.narrow(axis, division.first(width), width).contiguous()


def _gather(part: Tensor, axis: int, division: Division) -> Tensor:
    part = part.contiguous()
    parts = [torch.empty_like(part) for _ in range(division.size)]
    torch.distributed.all_gather(parts, part, group=division.group)
    return torch.cat(parts, dim=axis)
