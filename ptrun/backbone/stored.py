"""The tensors of a model's folder by name; each is read when it is asked for."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from ptrun.backbone.dequantization import UNUSED, Dequantized, dequantized
from ptrun.backbone.files import quantized_by, read_config, tensor_headers, weight_files
from ptrun.backbone.text_part import text_tensors
from ptrun.errors import UserError

_INDEX = "model.safetensors.index.json"


@dataclass(frozen=True)
class Stored:
    """A tensor of a file; an index reads it, or a part. A file stays open in `kept` alone.

    >>> from ptrun.backbone.files import SHIPPED
    >>> from ptrun.backbone.stored import stored
    >>> tensors = stored(SHIPPED / "pocket_bert")
    >>> tensors["bert.embeddings.word_embeddings.weight"][:2].shape
    torch.Size([2, 128])
    """

    file: Path
    name: str
    shape: torch.Size
    dtype: torch.dtype
    kept: dict[Path, Any] | None = None

    def __getitem__(self, index: Any) -> Tensor:
        if self.kept is None:
            with safe_open(self.file, "pt") as opened:
                return opened.get_slice(self.name)[index]  # type: ignore[no-any-return]
        if self.file not in self.kept:
            self.kept[self.file] = safe_open(self.file, "pt")
        return self.kept[self.file].get_slice(self.name)[index]  # type: ignore[no-any-return]

    def get_shape(self) -> list[int]:
        """Return the shape, as a slice of safetensors does."""
        return list(self.shape)


_DTYPES = {
    **{"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16},
    **{"I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8},
    **{"U8": torch.uint8, "BOOL": torch.bool, "F8_E4M3": torch.float8_e4m3fn},
    **{"F8_E5M2": torch.float8_e5m2, "F8_E8M0": torch.float8_e8m0fnu},
}


def stored(folder: Path, model: Any = None, *, keep: bool = False) -> dict[str, Any]:
    """Return the tensors of a folder, each a `Stored` or a `Dequantized`.

    For a `model` that is the text part of a checkpoint, its tensors alone, under its names. A
    folder with a missing file of its index is refused. `keep` keeps files open between reads.
    """
    tensors, kept = dict[str, Stored](), dict[Path, Any]() if keep else None
    for file in weight_files(folder):
        for name, (shape, dtype) in tensor_headers(file).items():
            if dtype not in _DTYPES:
                raise UserError(f"{file}: {name} is {dtype}; ptrun reads {', '.join(_DTYPES)}.")
            tensors[name] = Stored(file, name, torch.Size(shape), _DTYPES[dtype], kept)
    if (folder / _INDEX).is_file():
        listed = json.loads((folder / _INDEX).read_text(encoding="utf-8"))["weight_map"]
        if lost := next((name for name in listed if name not in tensors), None):
            raise UserError(
                f"backbone.path={folder}: {lost} should be in {listed[lost]}, which is missing or "
                f"damaged: {_INDEX} lists {len(listed)} tensors, and the files hold "
                f"{len(listed.keys() & tensors.keys())} of them. Copy the whole model again."
            )
    has_config = (folder / "config.json").is_file()  # the folder of a run, with its head, has none
    numbers = dequantized(tensors, folder) if has_config else dict[str, Any](tensors)
    part = model is not None and getattr(model.config, "text_of", None)
    return text_tensors(folder, numbers, model) if part else numbers


def dequantization(folder: Path) -> str:
    """Return how a folder was quantized, and the counts of its tensors; empty for plain weights."""
    if (method := quantized_by(read_config(folder))) is None:
        return ""
    names = [name for file in weight_files(folder) for name in tensor_headers(file)]
    unused = sum(UNUSED.search(name) is not None for name in names)
    more = f"; {unused} scales of activations are not used" if unused else ""
    count = sum(isinstance(tensor, Dequantized) for tensor in stored(folder).values())
    return f"dequantized from {method}: {count} tensors{more}"
