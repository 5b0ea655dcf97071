"""What a result was made with: versions, code, machine, data."""

import hashlib
import platform
import resource
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ptrun import __version__
from ptrun.types import Example, Split

_PACKAGES = ("torch", "transformers", "datasets", "hydra-core", "omegaconf", "safetensors")
_LISTED = 256


def software() -> dict[str, Any]:
    """Return the versions, and the commit of the code if it runs from a checkout."""
    versions = {"ptrun": __version__, "python": platform.python_version()}
    versions |= {package: version(package) for package in _PACKAGES}
    commit = _git("rev-parse", "HEAD")
    dirty = bool(_git("status", "--porcelain", "--untracked-files=no")) if commit else None
    return {"versions": versions, "git_commit": commit, "git_dirty": dirty}


def machine(device: str) -> dict[str, Any]:
    """Return device, its name and the peak memory of this process (or of the device) in MiB."""
    import torch

    if device == "cuda":
        peak = torch.cuda.max_memory_allocated() / 2**20
        return {"device": device, "name": torch.cuda.get_device_name(), "peak_memory_mib": peak}
    unit = 2**20 if sys.platform == "darwin" else 2**10  # ru_maxrss: bytes there, KiB on Linux
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
    name = platform.processor() or platform.machine()
    return {
        "device": device,
        "name": name,
        "threads": torch.get_num_threads(),
        "peak_memory_mib": peak,
    }


def samples(split: Split) -> dict[str, Any]:
    """Return which examples each part holds: count, a hash of their ids, short lists whole."""
    parts = {"train": split.train, "dev": split.dev, "test": split.test}
    return {"origin": dict(split.origin), **{part: _ids(own) for part, own in parts.items()}}


def _ids(examples: Sequence[Example]) -> dict[str, Any]:
    ids = [example.id for example in examples]
    digest = hashlib.sha256("\n".join(ids).encode()).hexdigest()[:16]
    listed = {"ids": ids} if len(ids) <= _LISTED else {}
    return {"count": len(ids), "ids_hash": digest, **listed}


def _git(*arguments: str) -> str | None:
    """Return git's answer about ptrun's own checkout, None where there is none."""
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
