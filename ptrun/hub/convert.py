"""Conversion of a checkpoint to a folder of safetensors, one file in memory at a time.

Files are memory-mapped if their format allows it, so memory stays far below the model's size. The
folder appears complete or not at all.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save_file
from torch import Tensor

from ptrun.errors import UserError
from ptrun.files import read_bytes
from ptrun.hub.pickled import read_snapshot
from ptrun.hub.staging import progress, staging

FILE_BYTES = 2_000_000_000
Dtype = Literal["fp16", "bf16", "fp32"]
DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}
_STORED = (
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.bool),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8),
)


def write_model(
    out: Path,
    layout: Mapping[str, Tensor],
    read: Callable[[str], Tensor],
    finish: Callable[[Path], None],
    doing: str = "importing",
    file_bytes: int = FILE_BYTES,
) -> tuple[int, int]:
    """Write the folder of a model; return its number of parameters and their bytes.

    Args:
        out: a new or empty folder; it appears complete or not at all.
        layout: the tensors in order, on the meta device.
        read: returns a tensor by its name; called once for each, in order.
        finish: writes the other files into a folder.
        doing: what a progress bar shows.
        file_bytes: most bytes of a file; a larger tensor gets its own file.
    """
    from huggingface_hub import split_torch_state_dict_into_shards

    split = split_torch_state_dict_into_shards(dict(layout), max_shard_size=file_bytes)
    total = sum(tensor.nbytes for tensor in layout.values())
    with staging(out, total) as folder, progress(total, doing) as advance:
        for file, names in split.filename_to_tensors.items():
            tensors, storages = dict[str, Tensor](), set[int]()
            for name in names:
                tensor, planned = read(name).contiguous(), layout[name]
                assert (tensor.dtype, tensor.shape) == (planned.dtype, planned.shape), name
                storage = tensor.untyped_storage().data_ptr()
                # the library refuses tensors that share memory
                tensors[name] = tensor.clone() if storage in storages else tensor
                storages.add(storage)
                advance(tensor.nbytes)
            save_file(tensors, folder / file, {"format": "pt"})
        if split.is_sharded:
            index = {"metadata": split.metadata, "weight_map": split.tensor_to_filename}
            (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")
        finish(folder)
    return sum(tensor.numel() for tensor in layout.values()), total


def write_config(folder: Path, config: dict[str, Any], name: str = "config.json") -> None:
    """Write config.json, or another file of settings."""
    text = json.dumps(config, indent=2) + "\n"
    (folder / name).write_text(text, encoding="utf-8")


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
        sizes = f"{self.sizes.layers} layers, vocabulary {self.sizes.vocab:,}"
        facts = f"{self.folder}: {self.parameters:,} parameters, {sizes}"
        return ", ".join([facts, f"{self.nbytes / 1e9:.2f} GB", *self.notes])


def planned(name: str, shape: Sequence[int], saved: torch.dtype, dtype: Dtype | None) -> Tensor:
    """Return a tensor on the meta device, with `dtype` or the saved one; integers keep theirs."""
    if saved not in _STORED:
        allowed = ", ".join(map(str, _STORED))
        raise UserError(f"{name}: dtype is {saved}; safetensors holds {allowed}.")
    cast = DTYPES[dtype] if dtype and saved.is_floating_point else saved
    return torch.empty(tuple(shape), dtype=cast, device="meta")


def converted(tensor: Tensor, name: str, dtype: torch.dtype, times: float = 1.0) -> Tensor:
    """Return a tensor scaled and cast; the same tensor if nothing changes."""
    if times == 1.0 and tensor.dtype == dtype:
        return tensor
    exact = torch.promote_types(tensor.dtype, torch.float32)
    cast = (tensor.to(exact) * times if times != 1.0 else tensor).to(dtype)
    if dtype == torch.float16 and not bool(cast.isfinite().all()):
        raise UserError(f"{name}: a value exceeds the range of fp16; add --dtype bf16.")
    return cast


# Conversion of a model in pickled files as it is: the same names, tensor by tensor.

_LARGEST = 250_000_000  # bytes
_BESIDE = ("*.json", "*.txt", "*.model", "*.jinja", "*/*.jinja", "1_Pooling/config.json")


def convert_folder(
    source: Path,
    out: Path,
    dtype: Dtype | None = None,
    file_bytes: int = FILE_BYTES,
    join: Callable[[Mapping[str, Any], Path], Mapping[str, Any]] | None = None,
) -> tuple[int, int]:
    """Write a model as safetensors, with its other files; return its parameters and their bytes.

    `source` is a folder as a repository of the hub has it; it keeps its files. Of several names for
    the same numbers the first is kept. The other arguments are those of `write_model`; `dtype` is
    that of the numbers, by default each tensor's own. `join` joins codes and scales to numbers.
    """
    tensors: Mapping[str, Any] = read_snapshot(source)
    if join is not None:
        tensors = join(tensors, source)
    names: dict[object, str] = {}
    for name, tensor in tensors.items():
        place: object = name
        if isinstance(tensor, Tensor) and tensor.numel():
            place = tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype
        names.setdefault(place, name)
    layout = {
        name: planned(name, tensors[name].shape, tensors[name].dtype, dtype)
        for name in names.values()
    }

    def finish(folder: Path) -> None:
        """Copy configuration and tokenizer; an index of weights names files that are not there."""
        for file in (path for pattern in _BESIDE for path in source.glob(pattern)):
            if not file.name.endswith(".index.json") and file.is_file():
                copy = folder / file.relative_to(source)
                copy.parent.mkdir(exist_ok=True)
                copy.write_bytes(read_bytes(file, _LARGEST, links=True))
        if join is not None:
            config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
            config.pop("quantization_config", None)
            write_config(folder, config)

    def read(name: str) -> Tensor:
        return converted(tensors[name][...], name, layout[name].dtype)

    return write_model(out, layout, read, finish, "converting", file_bytes)
