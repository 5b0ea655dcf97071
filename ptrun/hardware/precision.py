"""The precision of a run: what `hardware.precision=auto` means, and what a processor computes."""

import torch

from ptrun.config.schema import Precision
from ptrun.errors import UserError


def resolved(requested: Precision, device: str, dtype: Precision) -> Precision:
    """Return the precision; `auto` is fp32 for `device=cpu`, else the backbone's own `dtype`.

    It depends on the configuration alone, so a run has the same id on every machine.
    """
    if requested != "auto":
        return requested
    return "fp32" if device == "cpu" else dtype


def has_bf16(device: str) -> bool:
    """Return whether the processor computes bf16 matrix products."""
    if device == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def check_bf16(precision: str, device: str) -> None:
    """Check that a GPU which is to compute in bf16 does.

    Raises:
        UserError: it does not.
    """
    if precision == "bf16" and device == "cuda" and not has_bf16(device):
        raise UserError(
            "hardware.precision is bf16, which this GPU does not compute; type "
            "hardware.precision=fp32, or fp16."
        )


def no_tf32(precision: str) -> None:
    """Let cuDNN multiply in fp32 if that is the precision; by default it takes TF32."""
    if precision == "fp32":
        torch.backends.cudnn.allow_tf32 = False


def faster(precision: str, device: str, dtype: str) -> str | None:
    """Return the precision in which this processor computes a backbone faster, or None."""
    return "bf16" if (precision, dtype) == ("fp32", "bf16") and has_bf16(device) else None
