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
        part: Tensor = _Part.apply(whole, axis, self)  # type: ignore[no-untyped-call]
        return part

    def whole(self, own: Tensor, axis: int) -> Tensor:
        """Return the tensor gathered from all ranks; backward keeps this rank's gradient."""
        whole: Tensor = _Whole.apply(own, axis, self)  # type: ignore[no-untyped-call]
        return whole

    def first(self, width: int) -> int:
        """Return where this rank's part begins if each part is `width` wide."""
        return self.rank * width


class _Part(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, whole: Tensor, axis: int, division: Division) -> Tensor:
        ctx.axis, ctx.division = axis, division
        return _part(whole, axis, division)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return _gather(gradients[0], ctx.axis, ctx.division), None, None


class _Whole(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, part: Tensor, axis: int, division: Division) -> Tensor:
        ctx.axis, ctx.division = axis, division
        return _gather(part, axis, division)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return _part(gradients[0], ctx.axis, ctx.division), None, None


def _part(whole: Tensor, axis: int, division: Division) -> Tensor:
    width = whole.shape[axis] // division.size
    return whole.narrow(axis, division.first(width), width).contiguous()


def _gather(part: Tensor, axis: int, division: Division) -> Tensor:
    part = part.contiguous()
    parts = [torch.empty_like(part) for _ in range(division.size)]
    torch.distributed.all_gather(parts, part, group=division.group)
    return torch.cat(parts, dim=axis)
