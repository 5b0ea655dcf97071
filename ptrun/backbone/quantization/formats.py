"""Two formats that hold a frozen matrix in fewer bits: int8 by row, and nf4 by block.

int8 is symmetric: each row has one scale, its largest absolute number over 127. nf4 (Dettmers et
al. 2023, section 3) has 16 levels, the quantiles of a normal distribution, and a scale for every 64
numbers; the package bitsandbytes computes it, on a CPU and on CUDA. Only weights are quantized:
bitsandbytes' own int8 also quantizes activations, with outliers by batch, so that the answer to a
row would depend on the rows beside it.
"""

from functools import cache
from importlib.util import find_spec
from typing import Literal

import torch
from torch import Tensor

from ptrun.errors import UserError

Quantization = Literal["none", "int8", "nf4"]
BLOCK = 64
"""Numbers that share a scale in nf4."""
BYTES = {"int8": 1.0, "nf4": 0.5 + 4 / BLOCK}
"""Bytes per number; the scales of int8, four bytes a row, are left out."""
_LARGEST = 127


def check_installed(kind: Quantization) -> None:
    """Check that the package which a format needs is installed.

    Raises:
        UserError: it is not.
    """
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
        whole = matrix.float()
        scales = (whole.abs().amax(dim=1) / _LARGEST).clamp(min=torch.finfo(torch.float32).tiny)
        return (whole / scales[:, None]).round_().to(torch.int8), scales
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
