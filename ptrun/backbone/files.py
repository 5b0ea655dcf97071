"""Where a backbone's files are, what they are, and which we refuse. No torch here."""

import hashlib
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ptrun.errors import UserError
from ptrun.hub import go_offline_if_unreachable

SHIPPED = Path(__file__).resolve().parent.parent / "pocket" / "models"
LATEST = ("latest_checkpointed_iteration.txt", "latest")
"""What names the folder of ranks, in the checkpoints of GLM and CPM-2."""
_WANTED = ["*.json", "*.txt", "*.model", "*.safetensors"]
_SAMPLES, _SAMPLE_BYTES, _WHOLE_BYTES = 8, 2**16, 2**26


def locate(shipped: str | None, path: str | None) -> Path | None:
    """Return the local folder of a backbone, or None while it is only on the hub.

    Raises:
        UserError: the folder is not there, or holds no safetensors model or a damaged one.
    """
    if path is None and shipped is None:
        return None
    folder = Path(path) if path is not None else SHIPPED / str(shipped)
    if kind := _to_import(folder):
        raise UserError(
            f"backbone.path={folder}: a checkpoint of other code; turn it into a model folder once:"
            f"\nptrun import {kind} {folder} --out DIR"
        )
    if not (folder / "config.json").is_file():
        raise UserError(
            f"backbone.path={folder}: no model there; expected config.json, model.safetensors and "
            "tokenizer files."
        )
    for file in weight_files(folder):
        tensor_table(file)
    return folder


def _to_import(folder: Path) -> str | None:
    """Return what `ptrun import` calls a folder's checkpoint, None for a folder to load."""
    merged = all((folder / name).is_file() for name in ("model.pt", "dict.txt"))
    if merged or any(folder.glob("model-model_part-*.pt")):
        return "megatron"
    config = folder / "config.json"
    ranks = [*folder.glob("mp_rank_*.pt"), *(folder / name for name in LATEST)]
    if not config.is_file() and any(file.is_file() for file in ranks):
        return "glm|cpm2"
    # GLM-4 has the same model type, but not GLM's two position tables.
    return (
        "glm" if config.is_file() and b'"block_position_encoding"' in config.read_bytes() else None
    )


def weight_files(folder: Path) -> list[Path]:
    """Return the safetensors files of a folder.

    Raises:
        UserError: there are none; pickled weights (`*.bin`, `*.pt`) are refused by name.
    """
    found = sorted(folder.glob("*.safetensors"))
    if found:
        return found
    pickled = [file.name for file in folder.iterdir() if file.suffix in {".bin", ".pt", ".pkl"}]
    reason = f"{', '.join(pickled)} may run code when opened" if pickled else "no weights"
    raise UserError(
        f"backbone.path={folder}: {reason}; only safetensors are read.\n"
        "Convert once, where you trust the file: model.save_pretrained(FOLDER)."
    )


def fetch(hub: str, revision: str | None) -> Path:
    """Download (or find in the cache) a hub model and return its folder.

    Raises:
        UserError: the hub cannot be reached and the model is not cached.
    """
    go_offline_if_unreachable()
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError

    try:
        folder = Path(snapshot_download(hub, revision=revision, allow_patterns=_WANTED))
    except (OSError, ValueError, HfHubHTTPError) as error:
        reason = str(error).splitlines()[0][:120]
        raise UserError(
            f"cannot get backbone {hub} from the hub ({reason}).\n"
            "Type backbone.path=FOLDER for a local copy, or backbone=pocket_bert."
        ) from error
    if not any(folder.glob("*.safetensors")):
        raise UserError(
            f"{hub} has no safetensors at revision {revision}, and pickled weights are not read.\n"
            "Name a revision that has them (often refs/pr/1, made by the hub's converter) as\n"
            "backbone.revision=..., or convert it once: model.save_pretrained(FOLDER)."
        )
    return folder


def read_config(folder: Path) -> dict[str, Any]:
    """Return a folder's config.json.

    Raises:
        UserError: it is not JSON, or asks for code of its own (`auto_map`).
    """
    try:
        config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise UserError(f"{folder / 'config.json'}: not JSON ({error.msg}).") from error
    if "auto_map" in config:
        raise UserError(
            f"backbone.path={folder}: needs remote code (auto_map), which is never run."
        )
    return config


def tensor_table(file: Path) -> dict[str, Any]:
    """Return a safetensors header: tensor name to dtype, shape and byte range.

    Raises:
        UserError: the file is not a safetensors file.
    """
    try:
        with file.open("rb") as opened:
            header: dict[str, Any] = json.loads(
                opened.read(int.from_bytes(opened.read(8), "little"))
            )
    except (json.JSONDecodeError, UnicodeDecodeError, MemoryError, OverflowError) as error:
        raise UserError(f"{file}: damaged, or not a safetensors file.") from error
    header.pop("__metadata__", None)
    return header


def fingerprint(folder: Path) -> str:
    """Return 16 hex over the configuration and the weights.

    Files up to 64 MiB are read whole; of larger ones the tensor table and 8 samples of 64 KiB.
    """
    hashed = hashlib.sha256(json.dumps(read_config(folder), sort_keys=True).encode())
    for file in weight_files(folder):
        small = file.stat().st_size <= _WHOLE_BYTES
        hashed.update(file.read_bytes() if small else _sample(file))
    return hashed.hexdigest()[:16]


def _sample(file: Path) -> bytes:
    """Return the tensor table and the first bytes of a few tensors."""
    table = tensor_table(file)
    names = sorted(table)
    with file.open("rb") as opened:
        start = 8 + int.from_bytes(opened.read(8), "little")
        parts = [json.dumps(table, sort_keys=True).encode()]
        for name in names[:: max(1, len(names) // _SAMPLES)]:
            opened.seek(start + table[name]["data_offsets"][0])
            parts.append(opened.read(_SAMPLE_BYTES))
    return b"".join(parts)


def device_map(device: str) -> dict[str, str] | None:
    """Return what makes transformers read weights straight onto a device; None where it cannot.

    It asks for accelerate there (5.23). Without it, the host's memory holds them once, in their
    final precision.
    """
    return {"": device} if device != "cpu" and find_spec("accelerate") else None
