"""From a checkpoint's tensors to a folder of safetensors, one tensor in memory at a time.

The checkpoint is mapped where it can be, so memory stays far below the model's size. The folder
appears whole or not at all.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from ptrun.errors import UserError
from ptrun.importing.shards import Shards
from ptrun.importing.staging import progress, staging
from ptrun.importing.target import Target
from ptrun.importing.writing import FILE_BYTES, NAMES, Entry, write_model

Dtype = Literal["fp16", "bf16", "fp32"]
DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}


class Sizes(Protocol):
    """What is told of any model."""

    @property
    def layers(self) -> str:
        """How many layers, stack by stack."""

    @property
    def vocab(self) -> int:
        """Rows of the embeddings."""


@dataclass(frozen=True)
class Imported:
    """What an import wrote; `notes` are what its line says besides sizes."""

    folder: Path
    sizes: Any  # a format's own `Sizes`
    parameters: int
    nbytes: int
    notes: tuple[str, ...] = ()

    def line(self) -> str:
        """Return what is told of it."""
        sizes: Sizes = self.sizes
        facts = [
            f"{self.folder}: {self.parameters:,} parameters",
            f"{sizes.layers} layers",
            f"vocabulary {sizes.vocab:,}",
            f"{self.nbytes / 1e9:.2f} GB",
            *self.notes,
        ]
        return ", ".join(facts)


def convert(
    shards: Shards,
    wanted: Sequence[Target],
    out: Path,
    finish: Callable[[Path, str], None],
    *,
    dtype: Dtype | None = None,
    times: Callable[[str], float] = lambda name: 1.0,
    file_bytes: int = FILE_BYTES,
) -> tuple[int, int]:
    """Write a model's folder; return its parameters and their bytes.

    Args:
        shards: the checkpoint, checked.
        wanted: the model's tensors, in order.
        out: the folder, new or empty.
        finish: writes everything else into a folder, given the first tensor's type by name.
        dtype: of the tensors; the checkpoint's own by default.
        times: what a tensor is multiplied with, by its name.
        file_bytes: size of a file, at most.

    Raises:
        UserError: a value does not fit the dtype, or the disk is too full. Nothing is left then.
    """
    entries = {target: _entry(shards, target, dtype) for target in wanted}
    by_name = {entry.name: target for target, entry in entries.items()}
    total = sum(entry.nbytes for entry in entries.values())
    with staging(out, total) as folder, progress(total) as advance:

        def read(entry: Entry) -> Tensor:
            tensor = converted(shards.join(by_name[entry.name]), entry, times(entry.name))
            advance(entry.nbytes)
            return tensor

        write_model(folder, list(entries.values()), read, file_bytes)
        finish(folder, str(entries[wanted[0]].dtype).removeprefix("torch."))
    return sum(torch.Size(entry.shape).numel() for entry in entries.values()), total


def converted(tensor: Tensor, entry: Entry, times: float) -> Tensor:
    """Return a tensor scaled and in its dtype; the very tensor where nothing changes.

    Raises:
        UserError: a value is beyond what fp16 holds.
    """
    if times == 1.0 and tensor.dtype == entry.dtype:
        return tensor
    exact = torch.promote_types(tensor.dtype, torch.float32)
    made = (tensor.to(exact) * times if times != 1.0 else tensor).to(entry.dtype)
    if entry.dtype == torch.float16 and not bool(made.isfinite().all()):
        raise UserError(f"{entry.name}: values beyond what fp16 holds; add --dtype bf16.")
    return made


def write_config(folder: Path, config: dict[str, Any]) -> None:
    """Write config.json."""
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _entry(shards: Shards, target: Target, dtype: Dtype | None) -> Entry:
    own = shards.dtypes[target.source]
    if own not in NAMES:
        raise UserError(f"{target.source}: {own} is not a type of weights.")
    return Entry(target.name, target.made, DTYPES[dtype] if dtype else own)
