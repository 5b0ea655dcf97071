"""What a device computes, and how much memory it has free."""

import gc
import os
from collections.abc import Sequence
from pathlib import Path

import torch

from ptrun.config.schema import Precision
from ptrun.errors import UserError, of_device
from ptrun.training.member import Member

# The precision of a run: what `hardware.precision=auto` means, and what a processor computes.


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
    # torch 2.10 says nothing of its processor, so nothing is said to be faster there
    capabilities: dict[str, bool] = getattr(torch.cpu, "get_capabilities", dict)()
    return any(capabilities.get(name, False) for name in ("avx512_bf16", "amx_bf16"))


def check_bf16(precision: str, device: str) -> None:
    """Refuse bf16 on a GPU that does not compute in it."""
    if precision == "bf16" and device == "cuda" and not has_bf16(device):
        raise UserError(
            "hardware.precision is bf16, which this GPU does not compute; type "
            "hardware.precision=fp32, or fp16."
        )


def faster(precision: str, device: str, dtype: str) -> str | None:
    """Return the precision in which this processor computes a backbone faster, or None."""
    return "bf16" if (precision, dtype) == ("fp32", "bf16") and has_bf16(device) else None


# The free memory of a device, and how many members of a population fit in it.

PER_NUMBER = 4 * 5
"""Bytes of a learned number in training: itself, gradient, two moments and the best one, fp32."""


def free(device: str) -> int:
    """Return the free bytes of a device; on Linux, what it can provide without swapping."""
    if device != "cpu":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + unused
    info = Path("/proc/meminfo")
    if info.is_file():
        lines = dict(line.split(":", 1) for line in info.read_text().splitlines() if ":" in line)
        return int(lines["MemAvailable"].split()[0]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")  # macOS tells no more


def why_no_gpu() -> str:
    """Return why torch has no CUDA device, and what to type."""
    if torch.version.cuda is None:
        return (
            f"this torch ({torch.__version__}) is built without CUDA; install a build for CUDA, or "
            "type hardware=cpu."
        )
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except Exception as error:  # torch, its CUDA library and the driver share no error class
        if shown is None:
            return str(of_device(error) or error)
        return (
            f"CUDA_VISIBLE_DEVICES={shown!r} names no GPU that torch can use ({error}); unset or "
            "correct it."
        )
    return (
        "torch finds no CUDA device; type nvidia-smi to see what the driver finds, or hardware=cpu."
    )


def forget() -> None:
    """Free what earlier runs of this process left on the GPU, and count its peak memory anew.

    The frames of an error, or a user's own method, may hold a backbone in a cycle, which Python
    frees when it pleases.
    """
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def together(members: Sequence[Member], device: str, most: int) -> int:
    """Return how many members are trained together: those that half of the free memory holds.

    The other half is for activations, which a micro-batch bounds and members do not enlarge.
    """
    learned = max((sum(t.numel() for t in m.learned.values()) for m in members), default=0)
    fit = free(device) // 2 // max(1, learned * PER_NUMBER)
    return max(1, min(most, fit))
