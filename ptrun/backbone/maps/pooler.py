"""The pooler of an encoder, from the checkpoint or untrained.

An untrained one differs by the run's seed, as in the papers' code, which draws it when it loads the
model. The seed is in the run's manifest, so prediction draws the same again.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ptrun.backbone import files
from ptrun.converting.headers import tensor_table

_SEED = 20211014  # alone in runs from before the seed counted
_NAMES = ("pooler.dense.weight", "pooler.weight")  # ALBERT's is the second


def stored(folder: Path) -> tuple[Path, str] | None:
    """Return the file and name of a checkpoint's pooler weight, or None."""
    for file in files.weight_files(folder):
        for name in tensor_table(file):
            if name.endswith(_NAMES):
                return file, name
    return None


def pooler(size: int, source: tuple[Path, str] | None, seed: int | None) -> nn.Linear:
    """Return the stored pooler `Linear(H, H)`, or an untrained one that a seed draws."""
    from safetensors import safe_open

    linear = nn.Linear(size, size)
    generator = torch.Generator().manual_seed(_SEED + (seed or 0))
    nn.init.normal_(linear.weight, std=0.02, generator=generator)
    nn.init.zeros_(linear.bias)
    if source is not None:
        file, name = source
        with safe_open(file, "pt") as opened, torch.no_grad():
            linear.weight.copy_(opened.get_tensor(name))
            linear.bias.copy_(opened.get_tensor(name.replace("weight", "bias")))
    return linear


def activate(model: Any, dense: Tensor) -> Tensor:
    """Return pooled states `[K, H]` from a dense map's: GELU where DeBERTa names it, else tanh."""
    from transformers.activations import ACT2FN

    pooled: Tensor = ACT2FN[getattr(model.config, "pooler_hidden_act", "tanh")](dense)
    return pooled
