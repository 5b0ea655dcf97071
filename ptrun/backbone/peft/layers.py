"""The package PEFT, and its layers in a backbone."""

from importlib.util import find_spec
from typing import Any

from torch import nn

from ptrun.errors import UserError


def need_peft(option: str) -> None:
    """Check that PEFT, which an option needs, is installed.

    Raises:
        UserError: it is not installed.
    """
    if find_spec("peft") is None:
        raise UserError(f"{option} needs the package peft; type pip install 'ptrun[peft]'.")


def detach(model: nn.Module) -> None:
    """Replace the layers of PEFT by the backbone's own modules."""
    layers: list[tuple[str, Any]] = list(model.named_modules())
    for name, layer in layers:
        if hasattr(layer, "base_layer"):
            parent, _, child = name.rpartition(".")
            setattr(model.get_submodule(parent), child, layer.base_layer)
