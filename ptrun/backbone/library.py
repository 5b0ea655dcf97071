"""The class of a model and its configuration, from transformers or from this package."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import torch

from ptrun.backbone.family import Family
from ptrun.errors import UserError, explained


def model_class(family: Family) -> Any:
    """Return the class that holds the body and the output head."""
    return getattr(import_module(family.package), family.library)


def library_config(family: Family, content: Mapping[str, Any]) -> Any:
    """Return the configuration object for the content of a config.json."""
    rest = {key: value for key, value in content.items() if key != "model_type"}
    return model_class(family).config_class(**rest)


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
        if isinstance(error, OSError) and explained(error):
            raise
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
        raise UserError(
            f"backbone={name}: {place} cannot be read as a model ({reason})."
            "\nconfig.json or the weights are damaged, or not of one model; copy them again."
        ) from error
