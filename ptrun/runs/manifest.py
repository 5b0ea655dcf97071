"""What a result was made with: versions, code, machine, weights, data."""

import hashlib
import platform
import resource
import socket
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ptrun import __version__
from ptrun.hardware.precision import faster
from ptrun.hardware.torch_engine import TorchEngine
from ptrun.types import Example, Split

_PACKAGES = ("torch", "transformers", "datasets", "hydra-core", "omegaconf", "safetensors")
_MAX_LISTED = 256  # ids


def software() -> dict[str, Any]:
    """Return the versions, and the commit of the code if it runs from a checkout."""
    versions = {"ptrun": __version__, "python": platform.python_version()}
    versions |= {package: version(package) for package in _PACKAGES}
    commit = _git("rev-parse", "HEAD")
    dirty = bool(_git("status", "--porcelain", "--untracked-files=no")) if commit else None
    return {"versions": versions, "git_commit": commit, "git_dirty": dirty}


def machine(device: str) -> dict[str, Any]:
    """Return the device, its name, and the peak memory of it or of this process in MiB."""
    import torch

    if device == "cuda":
        peak = torch.cuda.max_memory_allocated() / 2**20
        return {"device": device, "name": torch.cuda.get_device_name(), "peak_memory_mib": peak}
    return {
        "device": device,
        "name": platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "peak_memory_mib": _peak() / 2**20,
    }


def _peak() -> int:
    """Return the most bytes that this process has held.

    On Linux a new process inherits `ru_maxrss` from the one that started it, such as a notebook.
    """
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.is_file() else []
    for line in lines:
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 2**10
    unit = 1 if sys.platform == "darwin" else 2**10  # ru_maxrss: bytes on macOS, else KiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def computation(engine: TorchEngine) -> dict[str, Any]:
    """Return how a run was computed; apart from the precision it changes rounding alone."""
    return {
        "precision": engine.precision,
        "quantization": engine.quantization,
        "faster_precision": faster(engine.precision, engine.device, engine.backbone.dtype),
        "ranks": engine.world.size,
        "nodes": list(dict.fromkeys(engine.world.each(socket.gethostname()))),
        "model_parallel": engine.world.model_parallel,
        "token_budget": engine.token_budget,
        "population": engine.population,
        "checkpointing": engine.checkpointing,
    }


def weights(backbone: Any, path: str | None, *, seed: int, frozen: bool) -> dict[str, Any]:
    """Return what identifies a backbone; `path` is its local folder, if one was given.

    `seed` is the run's. It draws a pooler that the files lack, unless a tuned one has its own.
    """
    untrained = backbone.architecture.pooler and not backbone.has_pooler
    return {
        "name": backbone.name,
        "weights": backbone.weights,
        "commit": backbone.commit,
        "path": path and str(Path(path).resolve()),
        "parameters": backbone.size(),
        "pooler_seed": _pooler_seed(backbone, seed) if untrained else None,
        "frozen_verified": True if frozen else None,
    }


def _pooler_seed(backbone: Any, seed: int) -> int | None:
    return backbone.tuned.pooler_seed if backbone.tuned else seed


def samples(split: Split) -> dict[str, Any]:
    """Return which examples each part holds: their number, a hash of their ids, and short lists."""
    parts = {name: _ids(getattr(split, name)) for name in ("train", "dev", "test")}
    return {"origin": dict(split.origin), **parts}


def _ids(examples: Sequence[Example]) -> dict[str, Any]:
    hashed = hashlib.sha256()
    for place, example in enumerate(examples):
        hashed.update(("\n" * bool(place) + example.id).encode())
    short = len(examples) <= _MAX_LISTED
    listed = {"ids": [example.id for example in examples]} if short else {}
    return {"count": len(examples), "ids_hash": hashed.hexdigest()[:16], **listed}


def _git(*arguments: str) -> str | None:
    """Return the output of git in ptrun's own checkout; None if there is none."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
