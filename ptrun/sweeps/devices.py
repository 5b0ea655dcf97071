"""The devices that the groups of a sweep get: each GPU, or shares of the cores."""

import os
import subprocess
from typing import Any

from ptrun.errors import UserError


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
    """Return the ids of the visible GPUs, without importing torch."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [one for one in visible.split(",") if one.strip() not in ("", "-1")]
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [str(n) for n, line in enumerate(listed.stdout.splitlines()) if line.startswith("GPU ")]
