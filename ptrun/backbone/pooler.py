"""The pooler of an encoder: the checkpoint's own, or the same untrained one for every run."""

from pathlib import Path

import torch
from torch import nn

from ptrun.backbone import files

_SEED = 20211014  # a checkpoint without a pooler gets one from this seed, in every run
_NAMES = ("pooler.dense.weight", "pooler.weight")  # ALBERT's is the second


def stored(folder: Path) -> tuple[Path, str] | None:
    """Return the file and name of a checkpoint's pooler weight, if it has one."""
    for file in files.weight_files(folder):
        for name in files.tensor_table(file):
            if name.endswith(_NAMES):
                return file, name
    return None


def pooler(size: int, found: tuple[Path, str] | None) -> nn.Linear:
    """Return the stored pooler `Linear(H, H)`, or an untrained one."""
    from safetensors import safe_open

    made = nn.Linear(size, size)
    generator = torch.Generator().manual_seed(_SEED)
    nn.init.normal_(made.weight, std=0.02, generator=generator)
    nn.init.zeros_(made.bias)
    if found is not None:
        file, name = found
        with safe_open(file, "pt") as opened, torch.no_grad():
            made.weight.copy_(opened.get_tensor(name))
            made.bias.copy_(opened.get_tensor(name.replace("weight", "bias")))
    return made
