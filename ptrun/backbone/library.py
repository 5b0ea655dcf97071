"""The class of a model and its configuration, from transformers or from this package."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from ptrun.backbone.family import Family


def model_class(family: Family) -> Any:
    """Return the class that holds the body and the output head."""
    return getattr(import_module(family.package), family.library)


def library_config(family: Family, content: Mapping[str, Any]) -> Any:
    """Return the configuration object for the content of a config.json."""
    rest = {key: value for key, value in content.items() if key != "model_type"}
    return model_class(family).config_class(**rest)
