"""Frozen matrices in fewer bits: two formats, and the linear map that holds one."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from ptrun.config.schema import Quantization
from ptrun.errors import UserError

# Two formats that hold a frozen matrix in fewer bits: int8 by row, and nf4 by block.
#
# int8 is symmetric: each row has one scale, its largest absolute number over 127. nf4 (Dettmers et
# al. 2023, section 3) has 16 levels, the quantiles of a normal distribution, and a scale for every
# 64 numbers; the package bitsandbytes computes it, on a CPU and on CUDA. Only weights are
# quantized: bitsandbytes' own int8 also quantizes activations, with outliers by batch, so that the
# answer to a row would depend on the rows beside it.

BLOCK = 64
"""Numbers that share a scale in nf4."""
BYTES = {"int8": 1.0, "nf4": 0.5 + 4 / BLOCK}
"""Bytes per number; the scales of int8, four bytes a row, are left out."""
_LARGEST = 127


def check_installed(kind: Quantization) -> None:
    """Refuse a format that needs a package which is not installed."""
    if kind == "nf4" and find_spec("bitsandbytes") is None:
        raise UserError(
            "hardware.quantization=nf4 needs the package bitsandbytes; type "
            "pip install 'ptrun[nf4]', or hardware.quantization=int8."
        )


def empty(kind: Quantization, outputs: int, inputs: int) -> tuple[Tensor, Tensor]:
    """Return codes and scales on the meta device, with the shapes that `quantize` gives."""
    if kind == "int8":
        sizes, of_codes, of_scales = (outputs, inputs), torch.int8, outputs
    else:
        numbers = outputs * inputs
        sizes, of_codes, of_scales = (-(-numbers // 2), 1), torch.uint8, -(-numbers // BLOCK)
    codes = torch.empty(sizes, dtype=of_codes, device="meta")
    return codes, torch.empty(of_scales, dtype=torch.float32, device="meta")


def quantize(kind: Quantization, matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return the codes and the fp32 scales of a matrix `[outputs, inputs]`.

    int8: codes `[outputs, inputs]` and scales `[outputs]`. nf4: two codes a byte, and a scale for
    each block of 64 numbers.
    """
    if kind == "int8":
        dense = matrix.float()
        scales = (dense.abs().amax(dim=1) / _LARGEST).clamp(min=torch.finfo(torch.float32).tiny)
        return (dense / scales[:, None]).round_().to(torch.int8), scales
    from bitsandbytes import functional

    codes, state = functional.quantize_4bit(matrix.contiguous(), blocksize=BLOCK, quant_type="nf4")
    return codes, state.absmax


def dense(
    kind: Quantization, codes: Tensor, scales: Tensor, shape: torch.Size, dtype: torch.dtype
) -> Tensor:
    """Return the matrix `[outputs, inputs]` in a precision."""
    if codes.is_meta:  # `ptrun plan` counts memory, also without bitsandbytes
        return torch.empty(shape, dtype=dtype, device="meta")
    if kind == "int8":
        return (codes * scales[:, None]).to(dtype)
    from bitsandbytes import functional

    levels = _levels(codes.device)
    # one long row: on CPUs with AVX-512, bitsandbytes gives wrong numbers for rows that are no
    # whole number of blocks
    state = functional.QuantState(  # type: ignore[no-untyped-call]
        scales, shape=(1, shape.numel()), code=levels, blocksize=BLOCK, quant_type="nf4",
        dtype=dtype,
    )  # fmt: skip
    return functional.dequantize_4bit(codes, state).view(shape)


@cache
def _levels(device: torch.device) -> Tensor:
    """Return the 16 levels of nf4; made once, since a copy to a GPU would wait in each product."""
    from bitsandbytes import functional

    levels: Tensor = functional.get_4bit_type("nf4", device=device)  # type: ignore[no-untyped-call]
    return levels


class QuantizedLinear(nn.Linear):
    """A linear map with a quantized matrix; input, output and bias keep their precision.

    `weight` stays on the meta device: it says shape and precision, and counts the parameters.
    `codes` and `scales` hold the numbers. The bytes of the scales are kept as uint8, because
    `module.to(dtype)` would round floating-point buffers.

    >>> from torch import nn
    >>> from ptrun.backbone.quantization import QuantizedLinear
    >>> linear = nn.Linear(64, 4)
    >>> held = QuantizedLinear(linear, "int8")
    >>> held.hold(linear.weight.detach())
    >>> held.codes.dtype, held.matrix().shape
    (torch.int8, torch.Size([4, 64]))
    """

    codes: Tensor
    scales: Tensor

    def __init__(self, like: Any, kind: Quantization):
        """Take the place of a linear map or of GPT-2's transposed one (`Conv1D`)."""
        nn.Module.__init__(self)
        self.kind = kind
        self.turned = not isinstance(like, nn.Linear)
        outputs, inputs = reversed(like.weight.shape) if self.turned else like.weight.shape
        self.in_features, self.out_features = inputs, outputs
        shape = torch.empty(outputs, inputs, dtype=like.weight.dtype, device="meta")
        self.weight = nn.Parameter(shape, requires_grad=False)
        self.bias = like.bias
        self._put(*empty(kind, outputs, inputs))

    def hold(self, matrix: Tensor) -> None:
        """Quantize a matrix as it is stored, `[outputs, inputs]` or transposed."""
        self._put(*quantize(self.kind, matrix.T if self.turned else matrix))

    def _put(self, codes: Tensor, scales: Tensor) -> None:
        self.register_buffer("codes", codes)
        self.register_buffer("scales", scales.view(torch.uint8))

    def matrix(self) -> Tensor:
        """Return the dense matrix `[outputs, inputs]` in the precision of `weight`."""
        scales = self.scales.view(torch.float32)
        return dense(self.kind, self.codes, scales, self.weight.shape, self.weight.dtype)

    def forward(self, input: Tensor) -> Tensor:
        """Return `[..., inputs] -> [..., outputs]`."""
        product: Tensor = _product(input, self)
        return product

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        """Move and cast as every module, but leave `weight` on the meta device."""
        weight = self.weight
        del self.weight
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        cast = fn(torch.empty(0, dtype=weight.dtype, device=self.codes.device)).dtype
        empty_like = torch.empty_like(weight, dtype=cast)
        self.weight = nn.Parameter(empty_like, requires_grad=False)
        return self


class _Product(torch.autograd.Function):
    """The product, without keeping the dense matrix for the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, module: QuantizedLinear) -> Tensor:
        ctx.module = module
        rows = x.reshape(-1, module.in_features)
        product = nn.functional.linear(rows, module.matrix(), module.bias)
        return product.view(*x.shape[:-1], module.out_features)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        # As one matrix of rows: a strided gradient `[B, L, D]` would become B small products.
        module, gradient = ctx.module, gradients[0]
        rows = gradient.reshape(-1, module.out_features)
        product = nn.functional.linear(rows, module.matrix().T)
        return product.view(*gradient.shape[:-1], module.in_features), None


_product: Any = _Product.apply


def replace(model: nn.Module, maps: Mapping[str, Any], kind: Quantization) -> None:
    """Replace linear maps, by their names in the model, by quantized ones that hold nothing yet."""
    quantized = {id(module): QuantizedLinear(module, kind) for module in maps.values()}
    for name, module in maps.items():
        parent, _, child = name.rpartition(".")
        setattr(model.get_submodule(parent), child, quantized[id(module)])


@contextmanager
def with_devices(model: nn.Module) -> Iterator[None]:
    """Give every `weight` the device of its codes, without memory.

    PEFT puts new tensors on the device of the weights that it finds.
    """
    held = {m: m.weight for m in model.modules() if isinstance(m, QuantizedLinear)}
    for module, weight in held.items():
        number = torch.full((), torch.nan, dtype=weight.dtype, device=module.codes.device)
        module.weight = nn.Parameter(number.expand(weight.shape), requires_grad=False)
    try:
        yield
    finally:
        for module, weight in held.items():
            module.weight = weight
