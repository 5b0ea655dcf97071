"""Element-wise functions that torch can compile into one pass over memory.

Only functions whose compiled result is equal bit for bit go through here, so a run may switch in
the middle. Compiled code is kept on disk. It takes about 20 s the first time on a machine, and 2 s
after that.
"""

import logging
import os
import shutil
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

_LOG = logging.getLogger(__name__)
_compiled: dict[Callable[..., Tensor], Any] = {}
_active = False


def call(function: Callable[..., Tensor], *arguments: Any) -> Tensor:
    """Return the function's value, compiled if `activate` was called.

    A compiler that fails is not asked again: the results are the same bits without it.
    """
    if not _active:
        return function(*arguments)
    if function not in _compiled:
        _compiled[function] = torch.compile(function, dynamic=True)
    try:
        value: Tensor = _compiled[function](*arguments)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # torch, Triton and the C compiler share no error class
        activate(False)
        reason = " ".join(str(error).split())[:200]
        _LOG.warning("dropout is not compiled, since compiling it fails: %s", reason)
        return function(*arguments)
    return value


def activate(on: bool) -> None:
    """Switch compilation on or off for this process."""
    global _active
    if on:
        home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        kept = Path(home).expanduser() / "ptrun" / "compiled"
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(kept))
    _active = on


def compiler(device: str) -> str | None:
    """Return what torch compiles with on a device; None if it is missing.

    Triton compiles a part in C that starts a kernel, so it needs a C compiler and Python's headers.
    """
    if device == "cuda":
        from torch.utils._triton import has_triton  # `import torch` does not import it

        header = Path(sysconfig.get_path("include")) / "Python.h"
        tools = any(map(shutil.which, (os.environ.get("CC", "gcc"), "cc", "clang")))
        return "triton" if has_triton() and tools and header.is_file() else None
    return shutil.which(os.environ.get("CXX", "g++")) or shutil.which("clang++")
