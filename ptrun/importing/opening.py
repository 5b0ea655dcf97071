"""Loading of pickled tensors without running their code."""

import pickle
import re
import struct
import warnings
import zipfile
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
import torch

from ptrun.errors import UserError

_POINTER = b"version https://git-lfs"
_DAMAGED = (
    *(RuntimeError, EOFError, ValueError, OSError, struct.error),
    *(LookupError, TypeError, AttributeError, AssertionError),
)
"""The errors of torch on bytes that it did not write."""


def open_file(file: Path, keys: Sequence[str] = (), what: str = "tensors by name") -> Any:
    """Return the content of a file; tensors are memory-mapped if possible.

    Args:
        file: the file.
        keys: the keys in use, the tensors' key last; empty if the tensors are at the top level.
        what: the expected kind of file, for messages.

    Raises:
        UserError: the file is damaged, holds objects that may run code, or has no tensors there.
    """
    _check_kind(file)
    try:
        with torch.serialization.safe_globals(_bookkeeping()), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about old pickles; unsafe ones raise
            held = torch.load(file, map_location="cpu", mmap=is_mapped(file), weights_only=True)
    except pickle.UnpicklingError as error:
        raise UserError(f"{file}: {_reason(error)}\n{_advice(file, keys)}") from error
    except _DAMAGED as error:
        raise UserError(f"{file}: damaged or cut short; copy or download it again.") from error
    inside = held.get(keys[-1]) if keys and isinstance(held, dict) else held
    if not _are_tensors(inside):
        place = f"under {keys[-1]!r}" if keys else "at its top"
        raise UserError(f"{file}: no tensors {place}; expected {what}.")
    return held


def is_mapped(file: Path) -> bool:
    """Return whether a file can be memory-mapped; files from before torch 1.6 are read whole."""
    try:
        return file.suffix == ".safetensors" or zipfile.is_zipfile(file)
    except zipfile.BadZipFile:  # a false positive: "disks that span multiple files"
        return False


def _check_kind(file: Path) -> None:
    """Reject files that torch did not write, such as an error page saved as a file."""
    try:
        with file.open("rb") as opened:
            start = opened.read(len(_POINTER))
    except OSError as error:
        raise UserError(f"{file}: cannot be read ({error.strerror}).") from error
    if start == _POINTER:
        raise UserError(f"{file}: a Git LFS pointer, not the file; type git lfs pull there.")
    if start and not start.startswith((b"PK", b"\x80")):  # a zip, or a pickle since protocol 2
        raise UserError(f"{file}: not a file of tensors; copy or download it again.")


def _are_tensors(module: object) -> bool:
    return isinstance(module, dict) and all(isinstance(v, torch.Tensor) for v in module.values())


def _bookkeeping() -> list[Any]:
    """Return the plain types of random states and settings, under old and new names of numpy."""
    array, scalar = numpy.zeros(0).__reduce__()[0], numpy.float64(0).__reduce__()[0]
    dtypes = {type(numpy.dtype(name)) for name in ("uint32", "int64", "float64")}
    core = "numpy.core.multiarray"
    old = [(array, f"{core}._reconstruct"), (scalar, f"{core}.scalar")]
    return [array, scalar, *old, numpy.ndarray, numpy.dtype, *dtypes, Namespace]


def _reason(error: Exception) -> str:
    """Return which object torch refused."""
    named = re.search(r"GLOBAL (\S+)", str(error))
    return f"holds {named[1] if named else 'objects'}; only tensors are loaded."


def _advice(file: Path, keys: Sequence[str]) -> str:
    """Return how to keep only the tensors."""
    kept = ", ".join(f"{key!r}: state[{key!r}]" for key in keys)
    return (
        "Such objects may run code. If you trust the file, keep only its tensors:\n"
        f"state = torch.load('{file.name}', weights_only=False, map_location='cpu'); "
        f"torch.save({f'{{{kept}}}' if keys else 'dict(state)'}, '{file.name}')"
    )
