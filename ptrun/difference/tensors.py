"""A bit-for-bit comparison of the learned tensors of two runs, without torch."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ptrun.errors import UserError
from ptrun.folder.find import Run
from ptrun.folder.header import DIGEST, PROMPT, combined, unpacked

_TYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_TYPES |= {"I64": "int64", "I32": "int32", "I8": "int8", "U8": "uint8", "BOOL": "bool"}

_PIECE = 2**24


@dataclass(frozen=True)
class Tensors:
    """The number of learned tensors, and the names of those that differ."""

    count: int
    differing: tuple[str, ...]


def compare(a: Run, b: Run) -> Tensors | None:
    """Return which learned tensors differ in type, shape or any bit; None if a file is missing.

    Raises:
        UserError: a file is damaged.
    """
    files = [run.folder / PROMPT for run in (a, b)]
    if not all(file.is_file() for file in files):
        return None
    own, other = map(_read, files)
    names = sorted({*own, *other})
    return Tensors(len(names), tuple(n for n in names if own.get(n) != other.get(n)))


def _read(file: Path) -> dict[str, str]:
    """Return the hash of type, shape and bytes of each tensor of a safetensors file, without torch.

    Raises:
        UserError: the file is damaged.
    """
    found: dict[str, str] = {}
    try:
        with file.open("rb") as opened:
            size = int.from_bytes(opened.read(8), "little")
            if size > file.stat().st_size:
                raise ValueError("its header is longer than the file")
            header = json.loads(opened.read(size))
            own = unpacked(header.pop("__metadata__", None))
            for name, entry in header.items():
                start, end = entry["data_offsets"]
                opened.seek(8 + size + start)
                kind = f"torch.{_TYPES[entry['dtype']]} {entry['shape']}"
                found[name] = _digest(opened, end - start, kind)
        if own.pop(DIGEST, None) not in (None, combined(found, own)):
            raise ValueError("its digest is another")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{file}: damaged ({error}); type rerun=true to train again.") from error
    return found


def _digest(opened: Any, length: int, kind: str) -> str:
    hashed = hashlib.sha256(kind.encode())
    while length > 0:
        piece = opened.read(min(length, _PIECE))
        if not piece:
            raise ValueError("it ends too early")
        hashed.update(piece)
        length -= len(piece)
    return hashed.hexdigest()
