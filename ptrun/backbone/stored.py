"""The tensors of a model's folder by name; each is read when it is asked for."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import safe_open
from torch import Tensor

from ptrun.backbone.files import tensor_names, weight_files
from ptrun.backbone.text_part import text_tensors
from ptrun.errors import UserError

_INDEX = "model.safetensors.index.json"


@dataclass(frozen=True)
class Stored:
    """A tensor of a file; an index reads it, or a part of it.

    >>> from ptrun.backbone.files import SHIPPED
    >>> from ptrun.backbone.stored import stored
    >>> tensors = stored(SHIPPED / "pocket_bert")
    >>> tensors["bert.embeddings.word_embeddings.weight"][:2].shape
    torch.Size([2, 128])
    """

    file: Path
    name: str

    def __getitem__(self, index: Any) -> Tensor:
        with self._opened() as opened:  # mapped memory stays in use, so briefly
            part: Tensor = opened.get_slice(self.name)[index]
        return part

    def get_shape(self) -> list[int]:
        """Return the shape, without reading the numbers."""
        with self._opened() as opened:
            shape: list[int] = opened.get_slice(self.name).get_shape()
        return shape

    def _opened(self) -> Any:
        return safe_open(self.file, "pt")


def stored(folder: Path, model: Any = None) -> dict[str, Stored]:
    """Return the tensors of a folder; refuse one with a missing file of its index.

    For a `model` that is the text part of a checkpoint, its tensors alone, under its names.
    """
    tensors = {
        name: Stored(file, name) for file in weight_files(folder) for name in tensor_names(file)
    }
    if (folder / _INDEX).is_file():
        listed = json.loads((folder / _INDEX).read_text(encoding="utf-8"))["weight_map"]
        if lost := next((name for name in listed if name not in tensors), None):
            raise UserError(
                f"backbone.path={folder}: {lost} should be in {listed[lost]}, which is missing or "
                f"damaged: {_INDEX} lists {len(listed)} tensors, and the files hold "
                f"{len(listed.keys() & tensors.keys())} of them. Copy the whole model again."
            )
    part = model is not None and getattr(model.config, "text_of", None)
    return text_tensors(folder, tensors, model) if part else tensors
