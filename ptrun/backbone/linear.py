"""The fp32 products of linear maps on a CPU of AMD, which oneDNN computes faster.

torch multiplies fp32 matrices with Intel's MKL. On AMD's CPUs with AVX-512, oneDNN, which is in
torch too, takes less than half of the time, forward and backward. Measured on two cores, in
GFLOP/s, from 64 rows on: 205 with MKL and 460 with oneDNN. torch has no option for it, and the
operator that its compiler uses has no backward pass of its own.

The last bits differ from MKL's. So the model of the CPU and the size of the matrix decide, not a
measured time, and hardly the number of rows: a row gives the same bits in every batch of at least
four rows, as it does with MKL.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

_SMALLEST = 2**16
"""Numbers of a matrix from which oneDNN is faster; each of its calls takes some 10 microseconds."""
_FEWEST = 4
"""Rows from which oneDNN is faster. With fewer, neither library gives the bits of many rows."""


def linear(x: Tensor, matrix: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return `[..., inputs] -> [..., outputs]` by a matrix `[outputs, inputs]`."""
    return _product(x, matrix, bias) if _faster(x, matrix) else functional.linear(x, matrix, bias)


def use_onednn(model: nn.Module) -> None:
    """Let the large linear maps of a model multiply with oneDNN where it is faster."""
    from transformers.pytorch_utils import Conv1D  # GPT-2's linear map, transposed

    if not _is_amd():
        return
    for module in model.modules():
        kind: Any = type(module)
        if kind in (nn.Linear, Conv1D) and cast(Tensor, module.weight).numel() >= _SMALLEST:
            module.__class__ = _with_onednn(kind)


@contextmanager
def plain(model: nn.Module) -> Iterator[None]:
    """Give the maps of a model their own classes; PEFT's GLoRA asks for exactly `nn.Linear`."""
    switched = [module for module in model.modules() if isinstance(module, _OneDnnMap)]
    for module in switched:
        module.__class__ = type(module).__mro__[2]
    try:
        yield
    finally:
        if switched:
            use_onednn(model)


@cache
def _is_amd() -> bool:
    """Return whether this is a CPU of AMD with AVX-512, and torch has both libraries."""
    if not (torch._C.has_mkl and torch._C._has_mkldnn):
        return False
    info = Path("/proc/cpuinfo")
    amd = info.is_file() and "AuthenticAMD" in info.read_text(encoding="utf-8")
    return amd and torch.backends.cpu.get_cpu_capability() == "AVX512"


def _faster(x: Tensor, matrix: Tensor) -> bool:
    """Return whether oneDNN multiplies these faster: fp32 on this CPU, outside autocast."""
    if x.dtype is not torch.float32 or matrix.dtype is not torch.float32 or not _is_amd():
        return False
    large = matrix.numel() >= _SMALLEST and x.numel() >= _FEWEST * x.shape[-1]
    here = x.device.type == matrix.device.type == "cpu"
    return large and here and not torch.is_autocast_enabled("cpu")


@cache
def _with_onednn(kind: Any) -> Any:
    return type(kind.__name__, (_OneDnnMap, kind), {})


class _OneDnnMap(nn.Module):
    weight: Tensor
    bias: Tensor | None

    def forward(self, x: Tensor) -> Tensor:
        """Return `[..., inputs] -> [..., outputs]`."""
        matrix = self.weight if isinstance(self, nn.Linear) else self.weight.T
        if _faster(x, matrix):
            return cast(Tensor, _product(x, matrix, self.bias))
        return super().forward(x)  # type: ignore[misc, no-any-return]


class _LinearProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, matrix)
        return _multiplied(x, matrix, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (gradient,), (x, matrix) = gradients, ctx.saved_tensors
        rows = gradient.flatten(0, -2)
        of_x, of_matrix, of_bias = ctx.needs_input_grad
        return (
            _multiplied(gradient, matrix.T, None) if of_x else None,
            _multiplied(rows.T, x.flatten(0, -2).T, None) if of_matrix else None,
            rows.sum(0) if of_bias else None,
        )


_product: Any = _LinearProduct.apply


def _multiplied(x: Tensor, matrix: Tensor, bias: Tensor | None) -> Tensor:
    product: Tensor = torch.ops.mkldnn._linear_pointwise(x, matrix, bias, "none", [], "")
    return product
