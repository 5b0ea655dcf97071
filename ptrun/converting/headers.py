"""The headers of safetensors files, read without a library."""

from pathlib import Path
from typing import Any

from ptrun.errors import UserError
from ptrun.files import from_json, opened

_MOST_HEADER = 100_000_000  # bytes; the limit of the safetensors library


def tensor_table(file: Path) -> dict[str, Any]:
    """Return the header of a safetensors file: dtype, shape and byte range by tensor name.

    Raises:
        UserError: the file is not a safetensors file.
    """
    try:
        with opened(file, links=True) as source:
            size = int.from_bytes(source.read(8), "little")
            if size > _MOST_HEADER:
                raise ValueError(f"a header of {size} bytes")
            header: dict[str, Any] = dict(from_json(source.read(size)))
        header.pop("__metadata__", None)
        if not all(isinstance(own, dict) and _is_entry(own) for own in header.values()):
            raise ValueError("an entry of another form")
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"{file}: damaged, or not a safetensors file.") from error
    return header


def _is_entry(entry: dict[str, Any]) -> bool:
    numbers = [entry.get("shape"), entry.get("data_offsets")]
    lists = all(isinstance(own, list) and all(type(n) is int for n in own) for own in numbers)
    return isinstance(entry.get("dtype"), str) and lists
