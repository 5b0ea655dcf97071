"""Reading of pickled tensors by `torch.load(weights_only=True)`: no name in a file is imported.

torch runs a pickle on a machine of its own, which makes tensors, plain containers and what
`_ALLOWED` names. A zip, as torch writes since 1.6, is mapped, so memory holds only what is used; an
older file is read whole.
"""

import pickle
import re
import struct
import warnings
import zipfile
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.serialization import safe_globals

from ptrun.errors import UserError
from ptrun.files import opened, opened_tensors, read_json

_POINTER = b"version https://git-lfs"
_DAMAGED = (
    *(OSError, EOFError, ValueError, LookupError, TypeError, AttributeError, NotImplementedError),
    *(ArithmeticError, struct.error, UnicodeError),
    *(RuntimeError, AssertionError, MemoryError, pickle.UnpicklingError, zipfile.BadZipFile),
)
"""The errors of torch and the standard library on bytes that are no pickle or no zip."""


class _Ignored:
    """A random state or a setting of numpy: never asked for, so not made."""

    def __init__(self, *_: object):
        pass

    def __setstate__(self, state: object) -> None:
        """Keep nothing."""


_NUMPY = ("ndarray", "dtype", *(f"{c}.multiarray.{n}" for c in ("core", "_core") for n in
          ("_reconstruct", "scalar")))  # fmt: skip
_ALLOWED: list[Any] = [
    (Namespace, "argparse.Namespace"),
    (set, "builtins.set"),
    *((_Ignored, f"numpy.{name}") for name in _NUMPY),
]
"""What checkpoints of a training hold beside tensors, with the name in the pickle."""


def open_file(file: Path, keys: Sequence[str] = (), what: str = "tensors by name") -> Any:
    """Return the content of a file; its tensors may lie in the mapped file, not to be written.

    `keys` are those in use, the tensors' key last; empty if the tensors are at the top level.
    `what` is the expected kind of file, for messages.
    """
    with opened(file, links=True) as source:
        if source.read(len(_POINTER)) == _POINTER:
            raise UserError(f"{file}: a Git LFS pointer, not the file; type git lfs pull there.")
    try:
        with safe_globals(_ALLOWED), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of protocols that the machine reads in part
            content = torch.load(file, "cpu", weights_only=True, mmap=_is_mappable(file))
        state: Any = content.get(keys[-1]) if keys and isinstance(content, dict) else content
        if not _are_tensors(state):
            place = f"under {keys[-1]!r}" if keys else "at its top"
            raise UserError(f"{file}: no tensors {place}; expected {what}.")
        tensors = {name: tensor.detach() for name, tensor in state.items()}
    except _DAMAGED as error:
        if name := re.search(r"GLOBAL (\S+)", str(error)):  # torch's sentence on a refused name
            raise UserError(
                f"{file}: holds {name[1]}; only tensors are loaded, because other objects may run "
                "code.\nIf you trust the file, save its tensors alone with torch.save."
            ) from error
        raise UserError(
            f"{file}: not a file of tensors, or damaged or cut short; copy or download it again."
        ) from error
    return {**content, keys[-1]: tensors} if keys else tensors


def _is_mappable(file: Path) -> bool:
    """Return whether a file is a zip whose records are stored as they are.

    torch maps a compressed record as if it were numbers.
    """
    if not zipfile.is_zipfile(file):
        return False
    with zipfile.ZipFile(file) as zipped:
        return all(record.compress_type == zipfile.ZIP_STORED for record in zipped.infolist())


def _are_tensors(state: object) -> bool:
    """Return whether an object holds tensors by name, and nothing else.

    Sparse, nested and quantized ones are no numbers side by side, and others have no numbers here.
    """
    if not isinstance(state, dict) or not state:
        return False
    return all(
        isinstance(name, str)
        and isinstance(tensor, Tensor)
        and tensor.layout == torch.strided
        and tensor.is_cpu
        and not (tensor.is_nested or tensor.is_quantized)
        for name, tensor in state.items()
    )


# The files of a local snapshot of a hub repository: one model, in one file or several.

_PATTERNS = ("*.safetensors", "pytorch_model*.bin")
_WHOLE = ("model.safetensors", "pytorch_model.bin")


def read_snapshot(source: Path, prefix: str = "") -> dict[str, Tensor]:
    """Return the tensors of all files by name, without a prefix; safetensors before pickles."""
    tensors: dict[str, Tensor] = {}
    for file in _find(source):
        try:
            if file.suffix != ".safetensors":
                part: dict[str, Tensor] = open_file(file)
            else:
                with opened_tensors(file, "pt", links=True) as opened_file:
                    part = {name: opened_file.get_tensor(name) for name in opened_file.keys()}  # noqa: SIM118
        except (OSError, ValueError) as error:
            raise UserError(f"{file}: damaged or cut short; copy or download it again.") from error
        part = {name.removeprefix(prefix): tensor for name, tensor in part.items()}
        if twice := sorted(tensors.keys() & part.keys()):
            raise UserError(f"{file}: tensor {twice[0]} occurs twice in the snapshot.")
        tensors |= part
    return tensors


def _find(source: Path) -> list[Path]:
    if (pattern := next((shape for shape in _PATTERNS if any(source.glob(shape))), None)) is None:
        raise UserError(f"{source}: no weights; expected {' or '.join(_PATTERNS)}.")
    files, named = sorted(source.glob(pattern)), set[str]()
    if single := [file for file in files if file.name in _WHOLE]:
        return single  # other files beside it are variants of it
    for index in source.glob(f"{pattern}.index.json"):
        try:
            named |= set(read_json(index, links=True)["weight_map"].values())
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{index}: not an index of weights; download it again.") from error
    if absent := sorted(named - {file.name for file in files}):
        raise UserError(f"{source}: {', '.join(absent)} missing, but in the index; download again.")
    return [file for file in files if file.name in named] if named else files
