"""The class of a model and its configuration, from transformers or from this package."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ptrun.backbone import files
from ptrun.backbone.family import Family
from ptrun.errors import UserError, explained, of_device

_T5 = ("t5", "mt5")


def model_class(family: Family) -> Any:
    """Return the class that holds the body and the output head."""
    return getattr(import_module(family.package), family.library)


def library_config(family: Family, content: Mapping[str, Any]) -> Any:
    """Return the configuration object for the content of a config.json."""
    rest = {key: value for key, value in content.items() if key != "model_type"}
    return model_class(family).config_class(**rest)


def with_our_attention(family: Family, folder: Path | None, content: dict[str, Any]) -> Any:
    """Return the configuration object, with our attention where it can be registered.

    Raises:
        UserError: the weights in `folder` lack an output matrix that the content states.
    """
    from ptrun.backbone.attention import NAME

    _check_output(folder, content)
    if family.other_head and files.stores(folder, f"{family.other_head}."):
        content = {**content, "legacy": False}  # DeBERTa's published configurations lack this
    config = library_config(family, content)
    config._attn_implementation = family.attention or NAME
    return config


def has_own_output(family: Family, folder: Path | None, config: Mapping[str, Any]) -> bool:
    """Return whether a T5 has an untied output matrix; the library ties every new one (5.23).

    Before the weights are loaded, a stored copy of the embeddings counts as untied.
    """
    if not family.has_decoder:
        return False
    if folder is None:
        return config.get("tie_word_embeddings") is False
    return files.stores(folder, "lm_head.weight")


def _check_output(folder: Path | None, config: Mapping[str, Any]) -> None:
    """Refuse a T5 without its own output matrix: the library takes the embeddings instead (5.23).

    Raises:
        UserError: the weights lack the matrix.
    """
    untied = config.get("tie_word_embeddings") is False and config.get("model_type") in _T5
    if folder and untied and not files.stores(folder, "lm_head.weight"):
        raise UserError(
            f"{folder}: the weights lack lm_head.weight, and config.json says that the output is "
            "not the word embeddings (tie_word_embeddings=false).\nCopy the whole model again."
        )


def linear_maps(family: Family, model: Any) -> dict[str, Any]:
    """Return the linear maps of a model's layers by name; GPT-2's are transposed (`Conv1D`)."""
    from transformers.pytorch_utils import Conv1D

    body, output = family.body(model), model.get_output_embeddings()
    own = {id(module) for module in body.modules() if module is not output}
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear | Conv1D) and id(module) in own
    }


@contextmanager
def reading(name: str, place: object) -> Iterator[None]:
    """Say which model a library cannot read: what it raises depends on what is wrong.

    Raises:
        UserError: config.json or the weights are not those of a model.
    """
    try:
        yield
    except (UserError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        if of_device(error) or (isinstance(error, OSError) and explained(error)):
            raise
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
        raise UserError(
            f"backbone={name}: {place} cannot be read as a model ({reason})."
            "\nconfig.json or the weights are damaged, or not of one model; copy them again."
        ) from error
