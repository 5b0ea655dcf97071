"""The fingerprint of a model folder: its configuration, its tokenizer and all of its weights.

Weights are hashed whole. For files above 64 MiB the hash is kept in `~/.cache/ptrun/weights.json`
beside size and time of the file, so that a large model is read once.
"""

import hashlib
import json
import logging
import os
from pathlib import Path
from typing import TypeGuard

from ptrun.backbone.files import read_config, weight_files
from ptrun.files import read_json
from ptrun.tokenizer import tokenizers

_LOG = logging.getLogger(__name__)
_KEPT_ABOVE = 2**26  # bytes; smaller files are hashed faster than a hash is found


def fingerprint(folder: Path) -> str:
    """Return 16 hex digits that identify the content of a model folder.

    Raises:
        UserError: the configuration or the weights are missing or damaged.
    """
    hashed = hashlib.sha256(json.dumps(read_config(folder), sort_keys=True).encode())
    hashed.update(tokenizers.digest(folder).encode())
    for file in weight_files(folder):
        hashed.update(_weights(file).encode())
    return hashed.hexdigest()[:16]


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _weights(file: Path) -> str:
    """Return the hash of a file of weights; that of a large unchanged one is looked up."""
    state = file.stat()
    if state.st_size <= _KEPT_ABOVE:
        return _digest(file)
    key, version = str(file.resolve()), [state.st_size, state.st_mtime_ns]
    kept = _read(_kept())
    own = kept.get(key)
    if not _is_intact(own) or own[:2] != version:
        _LOG.info("reading %s once for its fingerprint", file)
        own = kept[key] = _checked(*version, _digest(file))
        _write(_kept(), kept)
    return str(own[2])


def _checked(*values: int | str) -> list[int | str]:
    """Return size, time and hash of a file with their own hash, so that damage is noticed."""
    return [*values, hashlib.sha256(json.dumps(values).encode()).hexdigest()[:8]]


def _is_intact(own: object) -> TypeGuard[list[int | str]]:
    return isinstance(own, list) and own == _checked(*own[:3])


def _kept() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(home).expanduser() / "ptrun" / "weights.json"


def _read(file: Path) -> dict[str, list[int | str]]:
    """Return the kept hashes; a file that is not readable holds none."""
    try:
        kept = read_json(file)
    except (OSError, ValueError):
        return {}
    return kept if isinstance(kept, dict) else {}


def _write(file: Path, kept: dict[str, list[int | str]]) -> None:
    """Keep the hashes; where that is not possible the next run reads the weights again."""
    draft = file.with_suffix(f".{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(json.dumps(kept), encoding="utf-8")
        draft.replace(file)
    except OSError as error:
        _LOG.info("%s: not written (%s)", file, error.strerror)
