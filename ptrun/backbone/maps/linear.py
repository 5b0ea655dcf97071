"""The linear maps of a backbone's layers."""

from typing import Any

from torch import nn

from ptrun.backbone import library
from ptrun.backbone.pretrained import PretrainedBackbone

_TRANSPOSED = ("gpt2", "blocklm")


def linear_maps(backbone: PretrainedBackbone) -> dict[str, Any]:
    """Return the linear maps by their path; below a layer of PEFT, by the path of that layer.

    GPT-2's are transposed (`Conv1D`).
    """
    found = library.linear_maps(backbone.architecture, backbone.model)
    return {
        name.removesuffix(".base_layer"): module
        for name, module in found.items()
        if "lora_" not in name
    }


def transposed(backbone: PretrainedBackbone) -> bool:
    """Return whether the linear maps are GPT-2's `Conv1D`; quantized ones never are."""
    return backbone.config["model_type"] in _TRANSPOSED and backbone.quantization == "none"


def sizes(module: Any) -> tuple[int, int]:
    """Return the input and output width of a linear map."""
    first, second = module.weight.shape
    return (second, first) if isinstance(module, nn.Linear) else (first, second)
