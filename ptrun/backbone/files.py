"""Finds, reads and checks the files of a backbone, without torch."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ptrun.converting.headers import tensor_table
from ptrun.errors import UserError
from ptrun.files import read_json
from ptrun.tokenizer.tokenizers import BESIDE, FILES

SHIPPED = Path(__file__).resolve().parent.parent / "pocket" / "models"
LATEST = ("latest_checkpointed_iteration.txt", "latest")
"""Files of GLM's and CPM-2's checkpoints that name the folder with the ranks' weights."""
_LONGEST = 250_000_000  # bytes of a configuration or tokenizer
_LAYERS = ("num_hidden_layers", "num_layers", "num_decoder_layers", "n_layer")
_SIZES = (
    "hidden_size", "d_model", "n_embd", "vocab_size", "intermediate_size", "d_ff", "d_kv",
    "num_attention_heads", "num_heads", "n_head", "max_position_embeddings", "n_positions",
)  # fmt: skip


def locate(shipped: str | None, path: str | None) -> Path | None:
    """Return the local folder of a backbone, or None for a hub model.

    Raises:
        UserError: the folder does not exist, has no safetensors model, or has a damaged one.
    """
    if path is None and shipped is None:
        return None
    folder = Path(path) if path is not None else SHIPPED / str(shipped)
    _check_lengths(folder)
    if kind := _to_import(folder):
        raise UserError(
            f"backbone.path={folder} is a checkpoint of another library; convert it once:"
            f"\nptrun import {kind} {folder} --out DIR"
        )
    if not (folder / "config.json").is_file():
        raise UserError(
            f"backbone.path={folder}: no model there; expected config.json, model.safetensors and "
            "tokenizer files."
        )
    tensors = sum(len(tensor_table(file)) for file in weight_files(folder))
    _check_sizes(folder, tensors)
    return folder


def _check_lengths(folder: Path) -> None:
    """Refuse a configuration or tokenizer that is longer than any: it would fill the memory.

    Raises:
        UserError: names the file.
    """
    for name in ("config.json", "model.safetensors.index.json", *FILES, *BESIDE):
        file = folder / name
        if file.is_file() and file.stat().st_size > _LONGEST:
            raise UserError(
                f"{file}: {file.stat().st_size:,} bytes; expected at most {_LONGEST:,}. It is not "
                "a file of this model; copy it from the model's source again."
            )


def _check_sizes(folder: Path, tensors: int) -> None:
    """Refuse sizes that no model has, and more layers than tensors: a million takes hours to build.

    Raises:
        UserError: config.json has another model than the weights.
    """
    for key, value in read_config(folder).items():
        if key in (*_LAYERS, *_SIZES) and isinstance(value, int) and value < 1:
            raise UserError(f"{folder / 'config.json'}: {key} is {value}; expected 1 or more.")
        if key in _LAYERS and isinstance(value, int) and value > tensors:
            raise UserError(
                f"{folder / 'config.json'}: {key} is {value:,}, but the weights are {tensors:,} "
                "tensors. Use the config.json of these weights."
            )


def _to_import(folder: Path) -> str | None:
    """Return the kind that `ptrun import` needs for a checkpoint, None for a model folder."""
    if folder.suffix == ".gguf":
        return "gguf"
    merged = all((folder / name).is_file() for name in ("model.pt", "dict.txt"))
    if merged or any(folder.glob("model-model_part-*.pt")):
        return "megatron"
    config = folder / "config.json"
    if config.is_file():  # GLM-4 has the same model type, but not GLM's two position tables
        return "glm" if b'"block_position_encoding"' in config.read_bytes() else None
    ranks = [*folder.glob("mp_rank_*.pt"), *(folder / name for name in LATEST)]
    return "glm|cpm2" if any(file.is_file() for file in ranks) else None


def weight_files(folder: Path) -> list[Path]:
    """Return the safetensors files of a folder.

    Raises:
        UserError: there are none; the message names pickled weights and how to convert them.
    """
    if weights := sorted(folder.glob("*.safetensors")):
        for file in weights:
            if not file.is_file():
                raise UserError(f"{file}: not a file, so no weights can be read from it.")
        return weights
    pickled = [file.name for file in folder.iterdir() if file.suffix in {".bin", ".pt", ".pkl"}]
    raise UserError(
        f"backbone.path={folder}: {', '.join(pickled[:3]) or 'no weights'}; ptrun trains with "
        "safetensors.\n"
        f"Convert pytorch_model.bin once: ptrun import hf {folder} --out DIR"
    )


def read_config(folder: Path) -> dict[str, Any]:
    """Return a folder's config.json.

    Raises:
        UserError: it is not a JSON object, or needs remote code (`auto_map`).
    """
    file = folder / "config.json"
    try:
        config: dict[str, Any] = read_json(file, links=True)
    except ValueError as error:
        raise UserError(f"{file}: not JSON ({str(error)[:120]}).") from error
    if not isinstance(config, dict):
        raise UserError(f"{file}: expected an object {{...}}, got {type(config).__name__}.")
    if "auto_map" in config:
        raise UserError(
            f"backbone.path={folder}: needs remote code (auto_map), which ptrun never runs."
        )
    if config.get("quantization_config"):
        raise UserError(
            f"{file}: quantized weights (quantization_config); ptrun quantizes plain ones: use the "
            "original model with hardware.quantization=nf4 or int8."
        )
    return config


def stores(folder: Path | None, start: str) -> bool:
    """Return whether a tensor name in the weights of a local folder starts with `start`."""
    weights = weight_files(folder) if folder else []
    return any(name.startswith(start) for file in weights for name in tensor_table(file))


def device_map(device: str) -> dict[str, str] | None:
    """Return the `device_map` that loads weights directly onto a device, or None.

    This needs accelerate (5.23). Without it, host memory holds the weights once, in their final
    precision.
    """
    return {"": device} if device != "cpu" and find_spec("accelerate") else None
