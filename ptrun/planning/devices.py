"""The memory of each device of this machine, and of a requested one."""

import os
from dataclasses import dataclass
from typing import Literal

import torch

from ptrun.hardware.free_memory import free

GIB = 2**30


@dataclass(frozen=True)
class Device:
    """A device with its total and free bytes."""

    name: str
    kind: Literal["cpu", "cuda"]
    total: int
    free: int


def visible(device_gib: float | None) -> list[Device]:
    """Return this machine's memory, its CUDA devices, and one of `device_gib` GiB."""
    found = [_machine()]
    for index in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(index)
        name = f"cuda:{index} {torch.cuda.get_device_name(index)}"
        found.append(Device(name, "cuda", total, free))
    if device_gib is not None:
        size = int(device_gib * GIB)
        found.append(Device(f"a device of {device_gib:g} GiB", "cuda", size, size))
    return found


def _machine() -> Device:
    """Return the machine's memory."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Device("CPU memory", "cpu", total, free("cpu"))
