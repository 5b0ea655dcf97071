"""Which files make a checkpoint, and what one file holds, opened without running its code."""

import pickle
import re
import zipfile
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy
import torch

from ptrun.errors import UserError

_FILE = re.compile(r"mp_rank_(\d+)_model_states\.pt")
_LATEST = "latest_checkpointed_iteration.txt"


def find_files(source: Path) -> list[Path]:
    """Return the files of the ranks 0, 1, … below a checkpoint's folder.

    Raises:
        UserError: no such files there, or a rank is missing.
    """
    folder = _folder(source)
    ranks = {
        int(match[1]): file
        for file in folder.glob("mp_rank_*")
        if (match := _FILE.fullmatch(file.name))
    }
    if absent := sorted(set(range(max(ranks, default=-1) + 1)) - set(ranks)):
        names = ", ".join(f"mp_rank_{rank:02d}_model_states.pt" for rank in absent)
        raise UserError(f"{folder}: {names} missing; ranks there: {sorted(ranks)}.")
    if not ranks:
        raise UserError(
            f"{source}: no checkpoint there; expected {_LATEST} and\n"
            "<iteration>/mp_rank_00_model_states.pt, or a folder of mp_rank files."
        )
    return [ranks[rank] for rank in sorted(ranks)]


def open_file(file: Path) -> dict[str, Any]:
    """Return what a rank's file holds; tensors are mapped and read when used.

    Raises:
        UserError: the file is damaged, holds objects that may run code, or no `module`.
    """
    try:
        with torch.serialization.safe_globals(_bookkeeping()):
            held = torch.load(file, map_location="cpu", mmap=is_mapped(file), weights_only=True)
    except pickle.UnpicklingError as error:
        raise UserError(
            f"{file}: {_reason(error)}\n"
            "Such objects may run code. Where you trust the file, keep only the tensors:\n"
            f"state = torch.load('{file.name}', weights_only=False, map_location='cpu'); "
            f"torch.save({{'module': state['module']}}, '{file.name}')"
        ) from error
    except (RuntimeError, EOFError, ValueError, OSError) as error:
        raise UserError(f"{file}: damaged or cut short; copy or download it again.") from error
    if not isinstance(held, dict) or not _are_tensors(held.get("module")):
        raise UserError(f"{file}: no tensors under 'module'; expected a DeepSpeed model file.")
    return held


def is_mapped(file: Path) -> bool:
    """Tell whether a file can be mapped; those from before torch 1.6 are read whole."""
    return zipfile.is_zipfile(file)


def _folder(source: Path) -> Path:
    latest = source / _LATEST
    if not latest.is_file():
        return source
    return source / latest.read_text(encoding="utf-8").strip()


def _are_tensors(module: object) -> bool:
    return isinstance(module, dict) and all(isinstance(v, torch.Tensor) for v in module.values())


def _bookkeeping() -> list[Any]:
    """Return the plain types of random states and settings, under old and new names of numpy."""
    array, scalar = (
        numpy.zeros(0).__reduce__()[0],
        numpy.float64(0).__reduce__()[0],
    )
    dtypes = {type(numpy.dtype(name)) for name in ("uint32", "int64", "float64")}
    old = [
        (array, "numpy.core.multiarray._reconstruct"),
        (scalar, "numpy.core.multiarray.scalar"),
    ]
    return [array, scalar, *old, numpy.ndarray, numpy.dtype, *dtypes, Namespace]


def _reason(error: Exception) -> str:
    """Return which object torch refused."""
    named = re.search(r"GLOBAL (\S+)", str(error))
    return f"holds {named[1]}, which is not opened." if named else "not plain tensors; not opened."
