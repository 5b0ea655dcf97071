"""Conversion of a model in pickled files as it is: the same names, tensor by tensor."""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from ptrun.converting.convert import DTYPES, Dtype, converted
from ptrun.converting.hub_files import HubFiles
from ptrun.converting.shards import Shards
from ptrun.converting.staging import progress, staging
from ptrun.converting.writing import FILE_BYTES, NAMES, Entry, write_model
from ptrun.errors import UserError
from ptrun.files import read_bytes

_LARGEST = 250_000_000  # bytes
_BESIDE = ("*.json", "*.txt", "*.model", "1_Pooling/config.json")


def convert_folder(
    source: Path, out: Path, dtype: Dtype | None = None, file_bytes: int = FILE_BYTES
) -> tuple[int, int]:
    """Write a model as safetensors, with its other files; return its parameters and their bytes.

    Args:
        source: a folder as a repository of the hub has it; it keeps its files.
        out: a new or empty folder; it appears complete or not at all.
        dtype: dtype of the numbers; defaults to that of each tensor. Integers keep theirs.
        file_bytes: most bytes of a file.

    Raises:
        UserError: a file is damaged or missing, a tensor has a dtype that safetensors lacks, a
            value does not fit `dtype`, or the disk is too full.
    """
    files = HubFiles(source)
    shards = Shards(files)
    entries = [_entry(shards, name, dtype) for name in _without_copies(*files.open())]
    total = sum(entry.nbytes for entry in entries)
    with staging(out, total) as folder, progress(total, "converting") as advance:

        def read(entry: Entry) -> Tensor:
            advance(entry.nbytes)
            return converted(shards.read(entry.name)[0], entry, 1.0)

        write_model(folder, entries, read, file_bytes)
        _copy_beside(source, folder)
    return sum(entry.nbytes // entry.dtype.itemsize for entry in entries), total


def _without_copies(tensors: Mapping[str, Tensor]) -> list[str]:
    """Return the names of tensors; of several names for the same numbers the first one."""
    seen: dict[object, str] = {}
    for name, tensor in tensors.items():
        place = tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype
        seen.setdefault(place if tensor.numel() else name, name)
    return list(seen.values())


def _entry(shards: Shards, name: str, dtype: Dtype | None) -> Entry:
    saved = shards.dtypes[name]
    if saved not in NAMES:
        raise UserError(f"{name}: dtype is {saved}; safetensors holds {', '.join(NAMES.values())}.")
    cast = DTYPES[dtype] if dtype and saved.is_floating_point else saved
    return Entry(name, shards.shapes[name], cast)


def _copy_beside(source: Path, folder: Path) -> None:
    """Copy configuration and tokenizer; an index of weights names files that are not there."""
    for file in (found for pattern in _BESIDE for found in source.glob(pattern)):
        if not file.name.endswith(".index.json") and file.is_file():
            copy = folder / file.relative_to(source)
            copy.parent.mkdir(exist_ok=True)
            copy.write_bytes(_content(file))


def _content(file: Path) -> bytes:
    """Return the content of a small file.

    Raises:
        UserError: it is no regular file, or too large.
    """
    try:
        return read_bytes(file, _LARGEST, links=True)
    except OSError as error:
        raise UserError(f"{file}: cannot be copied ({error.strerror}).") from error
