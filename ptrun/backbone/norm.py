"""Dropout, residual sum and LayerNorm in one program of Triton each way, for frozen norms."""

from typing import Any, cast

import torch
from torch import Tensor, nn

from ptrun.backbone import launch
from ptrun.backbone.dropout import Keyed, row_keys
from ptrun.backbone.kernel import TOLERANCE, distance

_WIDEST = 8192  # a program has a whole line in registers
_OFF = {"KEYS": None, "ROWS": None, "COLUMNS": None, "AXES": 0, "PACKED": False, "DROPS": False}
_OFF |= dict.fromkeys(("site", "limit", "boost", "origin", "begin", "first", "second"), 0)


def suits(x: Tensor, residual: Tensor, norm: nn.Module) -> bool:
    """Return whether `add_norm` computes a norm: one type, nothing of the norm to learn."""
    if not launch.chosen(x) or not isinstance(norm, nn.LayerNorm) or x.shape[-1] > _WIDEST:
        return False
    if norm.weight.requires_grad or norm.bias.requires_grad or residual.shape != x.shape:
        return False
    same = {x.dtype} == {t.dtype for t in (residual, norm.weight, norm.bias)}
    return same and (not x.is_cuda or launch.agrees("the norm", error, x.device, x.dtype))


def add_norm(
    x: Tensor, residual: Tensor, norm: nn.LayerNorm, dropout: Keyed | None = None
) -> Tensor:
    """Return `norm(dropout(x) + residual)`, `[..., H]`; backward computes the mask again.

    >>> import torch
    >>> from ptrun.backbone.norm import add_norm
    >>> x = torch.ones(2, 3, 8, device="meta")
    >>> add_norm(x, x, torch.nn.LayerNorm(8)).shape
    torch.Size([2, 3, 8])
    """
    return cast(Tensor, _add_norm(x, residual, norm.weight, norm.bias, norm.eps, dropout))


class _AddNorm(torch.autograd.Function):
    """It keeps the sum `[..., H]`; backward computes its mean and deviation again."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor, eps: float,
        dropout: Keyed | None,
    ) -> Tensor:  # fmt: skip
        x, residual, keeps = x.contiguous(), residual.contiguous(), any(ctx.needs_input_grad[:2])
        out, total = torch.empty_like(x), torch.empty_like(x) if keeps else None
        tensors = {"X": x, "RESIDUAL": residual, "WEIGHT": weight, "BIAS": bias, "OUT": out}
        _start("normed", x, dropout, eps, tensors | {"SUM": total, "KEEPS": keeps})
        ctx.save_for_backward(total, weight)
        ctx.rest = dropout, eps
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        grad, (total, weight), (dropout, eps) = gradients[0], ctx.saved_tensors, ctx.rest
        grad = grad.contiguous()
        slopes = grad.new_empty(1 if dropout is None else 2, *grad.shape)
        tensors = {"GRAD": grad, "SUM": total, "WEIGHT": weight, "DR": slopes[0], "DX": slopes[-1]}
        _start("norm_slopes", grad, dropout, eps, tensors)
        return slopes[-1], slopes[0], None, None, None, None


_add_norm: Any = _AddNorm.apply


def _start(
    name: str, x: Tensor, dropout: Keyed | None, eps: float, arguments: dict[str, Any]
) -> None:
    """Start a program for each line of `x`."""
    width = x.shape[-1]
    block, lines = 1 << (width - 1).bit_length(), x.numel() // width
    arguments |= {"lines": lines, "SIZE": width, "N": block, "eps": eps}
    arguments |= _OFF if dropout is None else dropout.arguments(x) | {"DROPS": True}
    launch.start(name, lines, arguments, x.device, warps=min(16, max(1, block // 256)))


def error(device: torch.device, dtype: torch.dtype) -> float:
    """Return how far programs are from torch, over output and gradients; 1 is the tolerance."""
    keyed = Keyed(row_keys(1, 2, range(4)).to(device), 5, 0.3)

    def computed(fused: bool, dtype: torch.dtype) -> list[Tensor]:
        angles = torch.arange(5 * 480, device=device).view(5, 4, 3, 40) * 0.7
        x, residual, grad, weights, biases = angles.sin().to(dtype)
        weight, bias, leaves = weights[0, 0], biases[0, 0], (x, residual)
        for leaf in leaves:
            leaf.requires_grad_()
        if fused:
            out = _add_norm(*leaves, weight, bias, 1e-5, keyed)
        else:
            out = nn.functional.layer_norm(keyed(x) + residual, (40,), weight, bias)
        return [out, *torch.autograd.grad(out, leaves, grad)]

    pairs = zip(computed(True, dtype), computed(False, torch.float32), strict=True)
    return max(distance(*pair) for pair in pairs) / TOLERANCE[dtype]
