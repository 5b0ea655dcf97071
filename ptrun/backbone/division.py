"""A rank's place in a tensor-parallel group, and its part of what every rank has whole."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed
from torch import Tensor


@dataclass(frozen=True)
class Division:
    """One of `size` ranks that hold a model together.

    Args:
        rank: its place, from 0.
        size: ranks in the group.
        group: their process group.
        device: where the rank's part is.
    """

    rank: int
    size: int
    group: Any
    device: str

    def own(self, whole: Tensor, axis: int) -> Tensor:
        """Return this rank's part of a tensor along an axis; the whole gets its whole gradient."""
        own: Tensor = _Own.apply(whole, axis, self)  # type: ignore[no-untyped-call]
        return own

    def whole(self, own: Tensor, axis: int) -> Tensor:
        """Return the tensor of which each rank has a part; each gets its part of the gradient."""
        whole: Tensor = _Whole.apply(own, axis, self)  # type: ignore[no-untyped-call]
        return whole

    def first(self, width: int) -> int:
        """Return where this rank's part begins, given how wide it is."""
        return self.rank * width


class _Whole(torch.autograd.Function):
    """Put all ranks' parts together; backward, each keeps its part of what all have alike."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, axis: int, division: Division) -> Tensor:
        ctx.width, ctx.axis, ctx.division = own.shape[axis], axis, division
        parts = [torch.empty_like(own) for _ in range(division.size)]
        torch.distributed.all_gather(parts, own.contiguous(), group=division.group)
        return torch.cat(parts, dim=axis)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        start = ctx.division.first(ctx.width)
        return gradients[0].narrow(ctx.axis, start, ctx.width).contiguous(), None, None


class _Own(torch.autograd.Function):
    """Cut a replicated tensor; backward, every rank's part of the gradient is put together."""

    @staticmethod
    def forward(ctx: Any, whole: Tensor, axis: int, division: Division) -> Tensor:
        width = whole.shape[axis] // division.size
        ctx.shape, ctx.axis, ctx.division = whole.shape, axis, division
        return whole.narrow(axis, division.first(width), width).contiguous()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        whole = gradients[0].new_zeros(ctx.shape)
        width = gradients[0].shape[ctx.axis]
        whole.narrow(ctx.axis, ctx.division.first(width), width).copy_(gradients[0])
        torch.distributed.all_reduce(whole, group=ctx.division.group)
        return whole, None, None
