"""PEFT's LoRA layers around a backbone's linear maps, and their removal.

The layers take the place of the backbone's modules, but the low-rank tensors in them stay the
method's: they are plain attributes there, not parameters. So the backbone's parameters, its
checksum, size and precision are what they were.
"""

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any

from torch import nn

from ptrun.backbone.dropout import KeyedDropout
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError

_NAME = "default"
_SITE = 3_000_000  # dropout site, beyond those of attention


class LowRank(nn.Module):
    """What is added to a linear map: `down [r, in]`, then `up [out, r]`, which starts at zero."""

    def __init__(self, rank: int, inputs: int, outputs: int):
        super().__init__()
        self.down, self.up = (
            nn.Linear(inputs, rank, bias=False),
            nn.Linear(rank, outputs, bias=False),
        )
        nn.init.kaiming_uniform_(self.down.weight, a=5**0.5)  # as PEFT's
        nn.init.zeros_(self.up.weight)


def need_peft() -> None:
    """Refuse to go on without PEFT.

    Raises:
        UserError: it is not installed.
    """
    if find_spec("peft") is None:
        raise UserError("method=lora needs a package; type pip install 'ptrun[peft]'.")


def linear_maps(backbone: PretrainedBackbone) -> dict[str, Any]:
    """Return the linear maps of a backbone's layers by path, as they are without LoRA.

    GPT-2's are transposed (`Conv1D`).
    """
    from transformers.pytorch_utils import Conv1D

    body = backbone.architecture.body(backbone.model)
    own = {id(module) for module in body.modules()} - {id(backbone.model.get_output_embeddings())}
    return {
        name.removesuffix(".base_layer"): module
        for name, module in backbone.model.named_modules()
        if isinstance(module, nn.Linear | Conv1D) and id(module) in own and "lora_" not in name
    }


def sizes(module: Any) -> tuple[int, int]:
    """Return how wide a linear map's input and output are."""
    first, second = module.weight.shape
    return (second, first) if isinstance(module, nn.Linear) else (first, second)


def attach(
    backbone: PretrainedBackbone, owned: Mapping[str, LowRank], alpha: float, dropout: float
) -> None:
    """Put LoRA layers in place of the named modules; what was there before goes.

    Args:
        backbone: loaded, on its device.
        owned: what each named module's layer adds; several may share one.
        alpha: scale of what is added, times the rank.
        dropout: of what `down` reads, keyed like all dropout.
    """
    from peft import LoraConfig, inject_adapter_in_model

    detach(backbone.model)
    rank = next(iter(owned.values())).down.out_features
    config = LoraConfig(
        r=rank,
        lora_alpha=alpha,  # type: ignore[arg-type]
        target_modules=list(owned),
        fan_in_fan_out=backbone.config["model_type"] in ("gpt2", "blocklm"),
    )
    inject_adapter_in_model(config, backbone.model, _NAME, low_cpu_mem_usage=True)
    backbone.model.__dict__.pop("peft_config", None)
    for index, (name, low_rank) in enumerate(owned.items()):
        layer: Any = backbone.model.get_submodule(name)
        _own(layer.lora_A[_NAME], low_rank.down)
        _own(layer.lora_B[_NAME], low_rank.up)
        if dropout:
            keyed = KeyedDropout(dropout, _SITE + index, backbone.injection)
            layer.lora_dropout[_NAME] = keyed


def detach(model: nn.Module) -> None:
    """Put a backbone's own modules back where LoRA layers stand."""
    for name, layer in list(_layers(model)):
        parent, _, child = name.rpartition(".")
        setattr(model.get_submodule(parent), child, layer.base_layer)


def _layers(model: nn.Module) -> Iterator[tuple[str, Any]]:
    return ((name, m) for name, m in model.named_modules() if hasattr(m, "base_layer"))


def _own(inside: nn.Module, low_rank: nn.Linear) -> None:
    """Let a map inside a layer use a weight that is not its parameter."""
    del inside.weight
    object.__setattr__(inside, "weight", low_rank.weight)
