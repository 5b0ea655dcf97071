"""Finds, reads and checks the files of a backbone, without torch."""

import hashlib
import json
import logging
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ptrun.backbone import tokenizers
from ptrun.errors import UserError
from ptrun.files import opened_tensors, read_json, read_text, write_text

_LOG = logging.getLogger(__name__)


SHIPPED = Path(__file__).resolve().parent.parent / "pocket" / "models"
_LAYERS = ("num_hidden_layers", "num_layers", "num_decoder_layers", "n_layer")


def locate(shipped: str | None, path: str | None) -> Path | None:
    """Return the local folder of a backbone, which must hold a model; None for a hub model."""
    if path is None and shipped is None:
        return None
    folder = Path(path) if path is not None else SHIPPED / str(shipped)
    if not (folder / "config.json").is_file():
        raise UserError(
            f"backbone.path={folder}: no model there; expected config.json, model.safetensors and "
            "tokenizer files. ptrun import converts checkpoints of GLM, CPM-2 and Megatron-11B."
        )
    config = read_config(folder)
    tensors = sum(len(tensor_headers(file)) for file in weight_files(folder))
    for key, count in config.items():
        if key in _LAYERS and isinstance(count, int) and count > tensors:  # takes hours to build
            raise UserError(
                f"{folder / 'config.json'}: {key} is {count:,}, but the weights are {tensors:,} "
                "tensors. Use the config.json of these weights."
            )
    return folder


def weight_files(folder: Path) -> list[Path]:
    """Return the safetensors files of a folder; without any, say how to convert pickled ones."""
    if weights := sorted(folder.glob("*.safetensors")):
        for file in weights:
            if not file.is_file():
                raise UserError(f"{file}: not a file, so no weights can be read from it.")
        return weights
    pickled = [file.name for file in folder.iterdir() if file.suffix in {".bin", ".pt", ".pkl"}]
    if not pickled:
        raise UserError(
            f"backbone.path={folder}: no weights there; expected model.safetensors, or "
            "model-00001-of-0000N.safetensors and so on. Copy the whole model."
        )
    raise UserError(
        f"backbone.path={folder}: {', '.join(pickled[:3])}; ptrun trains with safetensors.\n"
        f"Convert pytorch_model.bin once: ptrun import hf {folder} --out DIR"
    )


def read_config(folder: Path) -> dict[str, Any]:
    """Return the config.json of a folder, or its text part beside parts for images or sound.

    Raises:
        UserError: it needs remote code (`auto_map`), or weights are quantized by another method.
    """
    config = text_of(folder.name, _config(folder))
    if config.get("text_of"):  # which may state another output than its files have
        names = (name for file in folder.glob("*.safetensors") for name in tensor_headers(file))
        config["tie_word_embeddings"] &= not any(name.endswith("lm_head.weight") for name in names)
    return config


def text_of(name: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the text part of a configuration with several parts, or its copy."""
    parts = [part for key, part in config.items() if re.fullmatch(r"(?!quant).+_config", key)]
    if not any(isinstance(part, dict) for part in parts):
        return dict(config)
    from ptrun.backbone.text_part import text_config

    return text_config(name, config)


def _config(folder: Path) -> dict[str, Any]:
    file = folder / "config.json"
    try:
        config: dict[str, Any] = read_json(file, links=True, hook=_number)
    except ValueError as error:
        raise UserError(f"{file}: not JSON ({str(error)[:120]}).") from error
    if not isinstance(config, dict):
        raise UserError(f"{file}: expected an object {{...}}, got {type(config).__name__}.")
    if "block_position_encoding" in config:  # not GLM-4, which has the same model type
        raise UserError(
            f"backbone.path={folder}: GLM's own checkpoint; convert it once:\n"
            f"ptrun import glm {folder} --out DIR"
        )
    if "auto_map" in config:
        raise UserError(
            f"backbone.path={folder}: needs remote code (auto_map), which ptrun never runs.\n"
            f"If transformers' own {config.get('model_type')!r} reads these weights, take auto_map "
            "out of a copy of config.json."
        )
    method = quantized_by(config)
    if method not in (None, *DEQUANTIZED):
        raise UserError(
            f"{file}: its weights are quantized by {method}, which ptrun does not read; it reads "
            f"{', '.join(DEQUANTIZED)}.\n{unquantized(folder, config)}"
        )
    return config


def _number(value: dict[str, Any]) -> Any:
    """Return a number that JSON has no word for, such as infinity, or the object itself."""
    return float(value["__float__"]) if value.keys() == {"__float__"} else value


# Weights that are quantized in their files, as `quantization_config` in config.json describes.

DEQUANTIZED = ("bitsandbytes", "fp8", "fbgemm_fp8", "compressed-tensors", "mxfp4")
"""The methods that `ptrun.backbone.dequantization` reads."""
_FORMATS = ("dense", "float-quantized", "int-quantized", "naive-quantized", "mixed-precision")
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_ENDING = re.compile(
    r"(?i)([-_.](gptq|awq|aqlm|hqq|exl[23]|gguf|bnb|nf4|nvfp4|mxfp4|fp[48]|u?int[48]|[2-8]-?bits?|"
    r"w\d+a\d+(g\d+)?|g\d+|autoround|quanto|quantized|dynamic|unsloth|marlin))+$"
)


def quantized_by(config: Mapping[str, Any]) -> str | None:
    """Return the method that quantized the weights of a config.json; None for plain weights."""
    settings = config.get("quantization_config")
    if not settings:
        return None
    if not isinstance(settings, dict):
        return f"{settings!r:.40}"
    is_old = settings.get("load_in_4bit") or settings.get("load_in_8bit")  # has no method
    method = str(settings.get("quant_method") or ("bitsandbytes" if is_old else "no method"))
    form, transforms = settings.get("format"), settings.get("transform_config")
    if method == "compressed-tensors" and (transforms or form not in (None, *_FORMATS)):
        return f"{method}, {'with transforms' if transforms else form}"
    return method


def unquantized(folder: Path, config: Mapping[str, Any]) -> str:
    """Return a sentence that names the model of which a folder is a quantized copy, and why."""
    card = folder / "README.md"
    text = read_text(card, "replace") if card.is_file() else ""
    head = text.split("---")[1] if text.startswith("---") else ""
    base = re.search(r"^base_model:\s*(?:-\s*)?['\"]?([\w.-]+/[\w.-]+)", head, re.MULTILINE)
    path = str(config.get("_name_or_path", ""))
    hub = re.fullmatch(r"models--(.+)--(.+)", folder.resolve().parent.parent.name)
    here = "/".join(hub.groups()) if hub else folder.resolve().name
    if base:
        name, source = base[1], "base_model in README.md"
    elif _HUB_NAME.fullmatch(path) and not _ENDING.search(path):
        name, source = path, "_name_or_path in config.json"
    elif (name := _ENDING.sub("", here)) != here:
        source = "its hub id" if hub else "the name of the folder"
    else:
        return "Use the model of which this is a quantized copy; no file here names it."
    return f"Use {name}, of which this is a quantized copy (from {source})."


def stores(folder: Path | None, start: str) -> bool:
    """Return whether a tensor name in the weights of a local folder starts with `start`."""
    weights = weight_files(folder) if folder else []
    return any(name.startswith(start) for file in weights for name in tensor_headers(file))


def device_map(device: str) -> dict[str, str] | None:
    """Return the `device_map` that loads weights directly onto a device, or None.

    This needs accelerate (5.23). Without it, host memory holds the weights once, in their final
    precision.
    """
    return {"": device} if device != "cpu" and find_spec("accelerate") else None


def tensor_headers(file: Path) -> dict[str, tuple[list[int], str]]:
    """Return shape and dtype, such as BF16, of the tensors of a safetensors file, by name."""
    try:
        with opened_tensors(file, links=True) as tensors:
            parts = {name: tensors.get_slice(name) for name in tensors.keys()}  # noqa: SIM118
            return {name: (part.get_shape(), part.get_dtype()) for name, part in parts.items()}
    except (OSError, ValueError) as error:
        raise UserError(f"{file}: damaged, or not a safetensors file.") from error


# The fingerprint of a model folder: its configuration, its tokenizer and all of its weights.
#
# Weights are hashed whole. For files above 64 MiB the hash is kept in `~/.cache/ptrun/weights`, by
# path, size and time of the file, so that a large model is read once.

_KEPT_ABOVE = 2**26  # bytes; smaller files are hashed faster than a hash is found


def fingerprint(folder: Path) -> str:
    """Return 16 hex digits that identify the content of a model folder."""
    hashed = hashlib.sha256(json.dumps(_config(folder), sort_keys=True).encode())
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
    version = f"{file.resolve()} {state.st_size} {state.st_mtime_ns}"
    file_of_digest = cache_file("weights", version)
    with suppress(OSError):
        digest, _, check = read_text(file_of_digest, "replace").partition(" ")
        if check == _hash(digest):  # else it was damaged
            return digest
    _LOG.info("reading %s once for its fingerprint", file)
    digest = _digest(file)
    try:
        file_of_digest.parent.mkdir(parents=True, exist_ok=True)
        write_text(file_of_digest, f"{digest} {_hash(digest)}")
    except OSError as error:  # the next run reads the weights again
        _LOG.info("%s: not written (%s)", file_of_digest, error.strerror)
    return digest


def cache_file(kind: str, facts: str) -> Path:
    """Return the file that keeps what was found out about some facts."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return home / "ptrun" / kind / _hash(facts)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:24]
