"""Conversion of a checkpoint to a folder of safetensors, one tensor in memory at a time.

Files are memory-mapped if their format allows it, so memory stays far below the model's size. The
folder appears complete or not at all.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from ptrun.converting.shards import Shards
from ptrun.converting.staging import progress, staging
from ptrun.converting.target import Target
from ptrun.converting.writing import FILE_BYTES, NAMES, Entry, write_model
from ptrun.errors import UserError

Dtype = Literal["fp16", "bf16", "fp32"]
DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}


@dataclass(frozen=True)
class Imported:
    """The result of an import; `notes` are added to its line."""

    folder: Path
    sizes: Any  # the `Sizes` of the format, with `layers` and `vocab`
    parameters: int
    nbytes: int
    notes: tuple[str, ...] = ()

    def line(self) -> str:
        """Return the line that the command prints."""
        facts = [
            f"{self.folder}: {self.parameters:,} parameters",
            f"{self.sizes.layers} layers",
            f"vocabulary {self.sizes.vocab:,}",
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
    """Write the folder of a model; return its number of parameters and their bytes.

    Args:
        shards: the checkpoint, already checked.
        wanted: the tensors of the model, in order.
        out: a new or empty folder.
        finish: writes the other files into a folder; its second argument is the dtype's name.
        dtype: dtype of the tensors; defaults to the checkpoint's.
        times: the factor of a tensor, by its name.
        file_bytes: most bytes of a file.

    Raises:
        UserError: a value does not fit the dtype, or the disk is too full. Nothing is written then.
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
    """Return a tensor scaled and cast; the same tensor if nothing changes.

    Raises:
        UserError: a value exceeds the range of fp16.
    """
    if times == 1.0 and tensor.dtype == entry.dtype:
        return tensor
    exact = torch.promote_types(tensor.dtype, torch.float32)
    cast = (tensor.to(exact) * times if times != 1.0 else tensor).to(entry.dtype)
    if entry.dtype == torch.float16 and not bool(cast.isfinite().all()):
        raise UserError(f"{entry.name}: a value exceeds the range of fp16; add --dtype bf16.")
    return cast


def write_config(folder: Path, config: dict[str, Any]) -> None:
    """Write config.json."""
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _entry(shards: Shards, target: Target, dtype: Dtype | None) -> Entry:
    saved = shards.dtypes[target.source]
    if saved not in NAMES or not saved.is_floating_point:
        raise UserError(
            f"{target.source}: dtype is {saved}; weights are float16, bfloat16, float32 or float64."
        )
    return Entry(target.name, target.model_shape, DTYPES[dtype] if dtype else saved)
