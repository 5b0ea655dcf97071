"""The devices that the groups of a sweep get: each GPU, or shares of the cores."""

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ptrun.errors import UserError

_DEVICES = Path("/dev")


def slots(requested: Any, device: str) -> list[str | None]:
    """Return what each group of runs sees at a time: a GPU's id, or None for a share of the cores.

    Args:
        requested: `sweep.devices`.
        device: `cpu` or `cuda`.

    Raises:
        UserError: the value is invalid, or there are fewer GPUs.
    """
    if requested != "auto" and not (type(requested) is int and requested > 0):
        raise UserError(f"sweep.devices={requested}: use auto, or a number of groups at a time.")
    if device != "cuda":
        return [None] * (1 if requested == "auto" else requested)
    gpus = _gpus()
    if requested != "auto" and requested > len(gpus):
        raise UserError(f"sweep.devices={requested}: {len(gpus)} GPUs are visible; use auto.")
    return [*gpus[: None if requested == "auto" else requested]] or [None]


def _gpus() -> list[str]:
    """Return the ids of the visible GPUs, or of their slices (MIG), without importing torch.

    Raises:
        UserError: CUDA_VISIBLE_DEVICES names a device twice, which CUDA takes for none.
    """
    visible, present = os.environ.get("CUDA_VISIBLE_DEVICES"), _present()
    if visible is None:
        return present
    named: list[str] = []
    for one in (one.strip() for one in visible.split(",")):
        if _is_absent(one, present):  # CUDA ignores this one and all after it
            break
        if one in named:
            raise UserError(
                f"CUDA_VISIBLE_DEVICES={visible}: {one} is there twice, so CUDA shows no device; "
                "name each once."
            )
        named.append(one)
    return named


def _is_absent(one: str, present: Sequence[str]) -> bool:
    """Return whether CUDA knows no such device; ids that are no numbers are left to it."""
    if not one.isdigit():
        return not one.startswith(("GPU-", "MIG-"))
    return bool(present) and present[0].isdigit() and int(one) >= len(present)


def _present() -> list[str]:
    """Return the ids of this machine's GPUs; of divided ones those of their slices."""
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):  # some containers have the devices alone
        return [str(n) for n, _ in enumerate(_DEVICES.glob("nvidia[0-9]*"))]
    whole = [line for line in listed.stdout.splitlines() if line.startswith("GPU ")]
    slices = re.findall(r"UUID: (MIG-[^)]+)", listed.stdout)
    return slices or [str(n) for n, _ in enumerate(whole)]
