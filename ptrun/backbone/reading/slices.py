"""Builds a model without weights and reads its tensors from files one by one."""

from collections.abc import Callable, Container, Iterator, Sequence
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


def skeleton(model_class: Any, config: Any, folder: Path, *, own_output: bool) -> Any:
    """Return a model whose parameters are on the meta device and tied as in the library.

    `own_output` is True for a T5 with an untied output matrix. Other models have one where the
    files in `folder` hold another matrix than the embeddings, whatever config.json says.
    """
    with _parameters_without_storage():
        model = model_class(config)
    model.tie_weights()
    output = model.get_output_embeddings()
    if own_output or _is_untied(model, folder):  # the library ties every new T5 (5.23)
        output.weight = nn.Parameter(torch.empty_like(output.weight, device="meta"))
    return model


def _is_untied(model: Any, folder: Path) -> bool:
    """Return whether the files hold an output matrix and embeddings that differ."""
    where, base = _places(folder), model.base_model_prefix
    for pair in model.all_tied_weights_keys.items():
        names = [n for one in pair if (n := _stored([one], base, where)) is not None]
        if len(names) == 2 and model.get_parameter(pair[0]) is model.get_output_embeddings().weight:
            with safe_open(where[names[0]], "pt") as one, safe_open(where[names[1]], "pt") as two:
                return not torch.equal(one.get_tensor(names[0]), two.get_tensor(names[1]))
    return False


def _places(folder: Path) -> dict[str, Path]:
    """Return the file of each tensor."""
    return {name: file for file in files.weight_files(folder) for name in tensor_table(file)}


def _stored(names: Sequence[str], base: str, where: Container[str]) -> str | None:
    """Return the name that the files have for a parameter of these names."""
    return next((name for name in _spellings(names, base) if name in where), None)


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
    where, base = _places(folder), getattr(model, "base_model_prefix", "")
    for places in _tied_names(model):
        stored = _stored(places, base, where)
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
