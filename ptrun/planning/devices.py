"""The memory of each device that is here, or that is asked about."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

GIB = 2**30


@dataclass(frozen=True)
class Device:
    """A device and its bytes: all it has, and those that are free now."""

    name: str
    kind: Literal["cpu", "cuda"]
    total: int
    free: int


def visible(asked_gib: float | None) -> list[Device]:
    """Return this machine's memory and its CUDA devices, and one of so many GiB if asked."""
    found = [_machine()]
    for index in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(index)
        name = f"cuda:{index} {torch.cuda.get_device_name(index)}"
        found.append(Device(name, "cuda", total, free))
    if asked_gib is not None:
        size = int(asked_gib * GIB)
        found.append(Device(f"a device of {asked_gib:g} GiB", "cuda", size, size))
    return found


def _machine() -> Device:
    """Return the machine's memory; free is what Linux can give without swapping."""
    pages = os.sysconf("SC_PAGE_SIZE")
    total = os.sysconf("SC_PHYS_PAGES") * pages
    free = os.sysconf("SC_AVPHYS_PAGES") * pages
    info = Path("/proc/meminfo")
    if info.is_file():
        lines = dict(line.split(":", 1) for line in info.read_text().splitlines() if ":" in line)
        free = int(lines["MemAvailable"].split()[0]) * 1024
    return Device("CPU memory", "cpu", total, free)
