"""Adds PEFT's LoRA layers around a backbone's linear maps, and removes them.

The layers replace modules of the backbone. The method owns their low-rank tensors, which are plain
attributes of the layers and not parameters. So the backbone keeps its parameters, checksum, size
and precision.
"""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from torch import nn

from ptrun.backbone import library
from ptrun.backbone.keyed_dropout import KeyedDropout
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError

_NAME = "default"
_TRANSPOSED = ("gpt2", "blocklm")
_SITE = 3_000_000  # dropout site, beyond those of attention


class LowRank(nn.Module):
    """The update of a linear map: `down [r, in]`, then `up [out, r]`, which starts at zero."""

    def __init__(self, rank: int, inputs: int, outputs: int):
        super().__init__()
        self.down = nn.Linear(inputs, rank, bias=False)
        self.up = nn.Linear(rank, outputs, bias=False)
        nn.init.kaiming_uniform_(self.down.weight, a=5**0.5)  # as in PEFT
        nn.init.zeros_(self.up.weight)


def need_peft(option: str) -> None:
    """Check that PEFT, which an option needs, is installed.

    Raises:
        UserError: it is not installed.
    """
    if find_spec("peft") is None:
        raise UserError(f"{option} needs the package peft; type pip install 'ptrun[peft]'.")


def transposed(backbone: PretrainedBackbone) -> bool:
    """Return whether the linear maps are GPT-2's `Conv1D`; quantized ones never are."""
    return backbone.config["model_type"] in _TRANSPOSED and backbone.quantization == "none"


def linear_maps(backbone: PretrainedBackbone) -> dict[str, Any]:
    """Return the linear maps of a backbone's layers by their path without LoRA.

    GPT-2's are transposed (`Conv1D`).
    """
    found = library.linear_maps(backbone.architecture, backbone.model)
    return {
        name.removesuffix(".base_layer"): module
        for name, module in found.items()
        if "lora_" not in name
    }


def sizes(module: Any) -> tuple[int, int]:
    """Return the input and output width of a linear map."""
    first, second = module.weight.shape
    return (second, first) if isinstance(module, nn.Linear) else (first, second)


def attach(
    backbone: PretrainedBackbone, owned: Mapping[str, LowRank], alpha: float, dropout: float
) -> None:
    """Replace the named modules by LoRA layers, and remove earlier ones.

    Args:
        backbone: a loaded backbone, on its device.
        owned: low-rank update by module path; modules may share one.
        alpha: scale of the update, times the rank.
        dropout: probability of dropout before `down`, keyed like all dropout.
    """
    from peft import LoraConfig, inject_adapter_in_model

    detach(backbone.model)
    config = LoraConfig(
        r=next(iter(owned.values())).down.out_features,
        lora_alpha=alpha,  # type: ignore[arg-type]
        target_modules=list(owned),
        fan_in_fan_out=transposed(backbone),
    )
    inject_adapter_in_model(config, backbone.model, _NAME, low_cpu_mem_usage=True)
    backbone.model.__dict__.pop("peft_config", None)
    for index, (name, low_rank) in enumerate(owned.items()):
        layer: Any = backbone.model.get_submodule(name)
        _own(layer.lora_A[_NAME], low_rank.down)
        _own(layer.lora_B[_NAME], low_rank.up)
        if dropout:
            layer.lora_dropout[_NAME] = KeyedDropout(dropout, _SITE + index, backbone.injection)


def detach(model: nn.Module) -> None:
    """Replace LoRA layers by the backbone's own modules."""
    layers: list[tuple[str, Any]] = list(model.named_modules())
    for name, layer in layers:
        if hasattr(layer, "base_layer"):
            parent, _, child = name.rpartition(".")
            setattr(model.get_submodule(parent), child, layer.base_layer)


def _own(inside: nn.Module, low_rank: nn.Linear) -> None:
    """Make a map inside a layer use a weight that is not its parameter."""
    del inside.weight
    object.__setattr__(inside, "weight", low_rank.weight)
