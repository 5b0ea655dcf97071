"""Writing of a model as safetensors files, with one tensor in memory at a time.

The library's `save_file` needs all tensors of a file in memory, and copies them.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

FILE_BYTES = 2_000_000_000
NAMES = {
    torch.float16: "F16", torch.bfloat16: "BF16", torch.float32: "F32", torch.float64: "F64",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8",
    torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """A tensor to write."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def nbytes(self) -> int:
        """Its size on disk."""
        return prod(self.shape) * self.dtype.itemsize


def write_model(
    folder: Path,
    entries: Sequence[Entry],
    read: Callable[[Entry], Tensor],
    file_bytes: int = FILE_BYTES,
) -> list[Path]:
    """Write all tensors and the index; return the files.

    Args:
        folder: the folder of the files.
        entries: the tensors, in order.
        read: returns a tensor; called once for each, in order.
        file_bytes: most bytes of a file; a larger tensor gets its own file.
    """
    parts = _split(entries, file_bytes)
    names = [f"model-{i:05d}-of-{len(parts):05d}.safetensors" for i in range(1, len(parts) + 1)]
    for name, part in zip(names, parts, strict=True):
        write_file(folder / name, part, read)
    places = {e.name: name for name, part in zip(names, parts, strict=True) for e in part}
    index = {"metadata": {"total_size": sum(e.nbytes for e in entries)}, "weight_map": places}
    text = json.dumps(index, indent=2) + "\n"
    (folder / "model.safetensors.index.json").write_text(text, encoding="utf-8")
    return [folder / name for name in names]


def write_file(file: Path, entries: Iterable[Entry], read: Callable[[Entry], Tensor]) -> None:
    """Write one safetensors file."""
    entries = list(entries)
    with file.open("wb") as opened:
        opened.write(_header(entries))
        for entry in entries:
            tensor = read(entry)
            assert (tensor.dtype, tuple(tensor.shape)) == (entry.dtype, entry.shape), entry
            opened.write(tensor.contiguous().flatten().view(torch.uint8).numpy().data)


def _split(entries: Sequence[Entry], file_bytes: int) -> list[list[Entry]]:
    """Divide the tensors into files of at most `file_bytes`."""
    parts: list[list[Entry]] = [[]]
    for entry in entries:
        if parts[-1] and sum(e.nbytes for e in parts[-1]) + entry.nbytes > file_bytes:
            parts.append([])
        parts[-1].append(entry)
    return parts


def _header(entries: Sequence[Entry]) -> bytes:
    """Return the header of a file: its length as little-endian u64, then JSON, padded to 8."""
    table: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for entry in entries:
        start, end = end, end + entry.nbytes
        kind = {"dtype": NAMES[entry.dtype], "shape": list(entry.shape)}
        table[entry.name] = kind | {"data_offsets": [start, end]}
    text = json.dumps(table, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text
