"""Builds a model without weights and reads its tensors from files one by one."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn

from ptrun.backbone import files
from ptrun.backbone.quantization.linear import QuantizedLinear
from ptrun.converting.headers import tensor_table

_OLD_NAMES = ((".LayerNorm.weight", ".LayerNorm.gamma"), (".LayerNorm.bias", ".LayerNorm.beta"))
"""BERT's first checkpoints use other names for the tensors of LayerNorm."""


def skeleton(model_class: Any, config: Any, *, own_output: bool) -> Any:
    """Return a model whose parameters are on the meta device and tied as in the library.

    `own_output` is True for a T5 with an untied output matrix.
    """
    with _parameters_without_storage():
        model = model_class(config)
    model.tie_weights()
    if own_output:  # the library ties every new T5 (5.23)
        model.lm_head.weight = nn.Parameter(torch.empty_like(model.lm_head.weight, device="meta"))
    return model


@contextmanager
def _parameters_without_storage() -> Iterator[None]:
    """Put new parameters on the meta device; buffers get real values, since files lack them."""
    from transformers.initialization import no_init_weights

    register = nn.Module.register_parameter

    def on_meta(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        empty = None if parameter is None else nn.Parameter(parameter.to("meta"))
        register(module, name, empty)

    nn.Module.register_parameter = on_meta  # type: ignore[method-assign, assignment]
    try:
        with no_init_weights():
            yield
    finally:
        nn.Module.register_parameter = register  # type: ignore[method-assign]


def fill(
    model: nn.Module,
    folder: Path,
    dtype: torch.dtype,
    device: str,
    part: Callable[[str, Any], Tensor] = lambda _, whole: whole[:],
) -> set[str]:
    """Read every parameter of a skeleton onto a device; return the names that the files lack.

    `part` takes the name of a parameter and a safetensors slice, and returns what is to be read.
    """
    missing = set()
    where = {name: f for f in files.weight_files(folder) for name in tensor_table(f)}
    base = getattr(model, "base_model_prefix", "")
    for places in _tied_names(model):
        stored = next((n for n in _spellings(places, base) if n in where), None)
        if stored is None:
            missing.add(places[0])
            tensor = torch.zeros_like(model.get_parameter(places[0]), dtype=dtype, device=device)
        else:
            with safe_open(where[stored], "pt") as opened:  # mapped memory stays in use, so briefly
                own = part(places[0], opened.get_slice(stored))
                tensor = own.to(device, dtype, copy=True)
        _put(model, places, tensor)
    return missing


def _put(model: nn.Module, places: Sequence[str], tensor: Tensor) -> None:
    parameter = nn.Parameter(tensor, requires_grad=False)
    for place in places:
        module, _, last = place.rpartition(".")
        owner = model.get_submodule(module)
        if last == "weight" and isinstance(owner, QuantizedLinear):
            owner.hold(tensor)
            return
        setattr(owner, last, parameter)


def _tied_names(model: nn.Module) -> list[list[str]]:
    """Return all names of each parameter; tied ones have several."""
    names: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return list(names.values())


def _spellings(names: Sequence[str], base: str) -> Iterator[str]:
    """Return possible names of a parameter in files: with and without the base prefix, old ones."""
    for name in names:
        for spelling in (name, name.removeprefix(f"{base}."), f"{base}.{name}"):
            yield spelling
            for new, old in _OLD_NAMES:
                if spelling.endswith(new):
                    yield spelling.removesuffix(new) + old
