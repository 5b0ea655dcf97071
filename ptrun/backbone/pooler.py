"""The pooler of an encoder, from the checkpoint or untrained and equal in every run."""

from pathlib import Path

import torch
from torch import nn

from ptrun.backbone import files

_SEED = 20211014  # initializes the pooler that a checkpoint lacks, in every run
_NAMES = ("pooler.dense.weight", "pooler.weight")  # ALBERT's is the second


def stored(folder: Path) -> tuple[Path, str] | None:
    """Return the file and name of a checkpoint's pooler weight, or None."""
    for file in files.weight_files(folder):
        for name in files.tensor_table(file):
            if name.endswith(_NAMES):
                return file, name
    return None


def pooler(size: int, source: tuple[Path, str] | None) -> nn.Linear:
    """Return the stored pooler `Linear(H, H)`, or an untrained one."""
    from safetensors import safe_open

    linear = nn.Linear(size, size)
    generator = torch.Generator().manual_seed(_SEED)
    nn.init.normal_(linear.weight, std=0.02, generator=generator)
    nn.init.zeros_(linear.bias)
    if source is not None:
        file, name = source
        with safe_open(file, "pt") as opened, torch.no_grad():
            linear.weight.copy_(opened.get_tensor(name))
            linear.bias.copy_(opened.get_tensor(name.replace("weight", "bias")))
    return linear
