"""Puts the layers of any PEFT tuner into a backbone, with learned tensors that the method owns.

PEFT replaces modules of the backbone. Its new parameters become plain attributes of the layers, so
the backbone keeps its parameters, checksum, size and precision.
"""

import re
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ptrun.backbone.keyed_dropout import KeyedDropout
from ptrun.backbone.maps.linear import linear_maps
from ptrun.backbone.peft.layers import detach
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.backbone.quantization.linear import with_devices
from ptrun.errors import UserError

_NAME = "default"
_SITE = 4_000_000  # dropout site, beyond those of LoRA
_BESIDE = ("IA3", "LORA", "VERA")
"""Types whose layers add to a map's output, and do not read its matrix."""
_PEFT_ERRORS = (
    *(ValueError, TypeError, LookupError, AttributeError, NotImplementedError, RuntimeError),
    *(re.error, MemoryError),
)


@dataclass(frozen=True)
class Tuner:
    """The layers that PEFT put into a backbone.

    Args:
        root: PEFT's tuner; it holds the backbone's model and what layers share.
        layers: the replaced modules, by path.
        learned: the new parameters that PEFT trains, by path.
    """

    root: Any
    layers: Mapping[str, Any]
    learned: Mapping[str, nn.Parameter]


def tuned_by(
    backbone: PretrainedBackbone, config: Any, seed: int, *, decoder: bool = True
) -> Tuner:
    """Replace modules of a backbone by the layers of a PEFT configuration; remove earlier ones.

    Args:
        backbone: its model may be on the meta device.
        config: a `peft.PeftConfig`.
        seed: draws the layers' random values.
        decoder: whether the decoder of an encoder-decoder has layers.

    Raises:
        UserError: PEFT rejects the configuration, or it would change the backbone's own weights.
    """
    from peft.mapping import PEFT_TYPE_TO_TUNER_MAPPING

    _check_quantized(backbone, config)
    model = backbone.model
    detach(model)
    before = {id(p): (p._version, p.data_ptr()) for p in model.parameters()}
    buffers = {id(buffer) for buffer in model.buffers()}
    device = next(model.parameters()).device
    made: Callable[..., Any] = PEFT_TYPE_TO_TUNER_MAPPING[config.peft_type]
    try:
        with (
            warnings.catch_warnings(),
            torch.random.fork_rng(devices=[]),
            _meta(device),
            with_devices(model),
        ):
            warnings.simplefilter("ignore", UserWarning)  # PEFT's, about what it does by default
            torch.manual_seed(seed)
            root = made(model, config, _NAME)
    except _PEFT_ERRORS as error:
        detach(model)
        raise UserError(_rejected(backbone, str(error))) from error
    model.__dict__.pop("peft_config", None)
    _keep_inside(backbone, decoder)
    _check_untouched(backbone, before)
    _widen(root, buffers)
    layers = {n: m for n, m in model.named_modules() if hasattr(m, "base_layer")}
    fresh = {n: p for n, p in root.named_parameters() if id(p) not in before and p.requires_grad}
    if not fresh:
        raise UserError("method.config: PEFT trains nothing with it; give other target_modules.")
    return Tuner(root, layers, {n.removeprefix("model."): p for n, p in fresh.items()})


def adopt(tuner: Tuner, owned: Mapping[str, Tensor], backbone: PretrainedBackbone) -> None:
    """Make the layers use tensors that are not their parameters, and dropout keyed by rows.

    Raises:
        UserError: a layer has a dropout that is drawn for a whole batch.
    """
    by_id = {id(parameter): owned[name] for name, parameter in tuner.learned.items()}
    for module in tuner.root.modules():
        for name, parameter in list(module._parameters.items()):
            if id(parameter) in by_id:
                del module._parameters[name]
                object.__setattr__(module, name, by_id[id(parameter)])
    _key_dropout(tuner.root, backbone)


def _check_quantized(backbone: PretrainedBackbone, config: Any) -> None:
    """Refuse layers that read matrices which are held quantized.

    Raises:
        UserError: the configuration has such layers.
    """
    kind, reads = backbone.quantization, getattr(config, "use_dora", False)
    if kind != "none" and (reads or config.peft_type not in _BESIDE):
        name = "DoRA" if reads else config.peft_type
        raise UserError(
            f"hardware.quantization={kind}: {name} reads dense matrices of the backbone; type "
            f"hardware.quantization=none, or use {', '.join(_BESIDE)}."
        )


def _rejected(backbone: PretrainedBackbone, error: str) -> str:
    """Return the message for a configuration that PEFT rejects."""
    if "target modules" not in error.lower().replace("_", " "):
        return f"method.config: PEFT rejects it: {error.splitlines()[0] if error else 'no reason'}"
    known = dict.fromkeys(name.rpartition(".")[2] for name in linear_maps(backbone))
    return (
        f"method.config.target_modules: PEFT finds no such module in {backbone.name}. Name one or "
        f"more of {', '.join(known)}."
    )


def _meta(device: torch.device) -> Any:
    """Return the context in which new layers are made: on the meta device if the model is."""
    return torch.device(device if device.type == "meta" else "cpu")


def _keep_inside(backbone: PretrainedBackbone, decoder: bool) -> None:
    """Put back the modules outside the layers: poolers, output heads and an unused decoder."""
    body = backbone.architecture.body(backbone.model)
    inside = {id(module) for module in body.modules()}
    outputs = backbone.model.get_output_embeddings()
    modules: list[tuple[str, Any]] = list(backbone.model.named_modules())
    for name, module in modules:
        unused = name.startswith("decoder.") and not decoder
        is_output = outputs is not None and getattr(module, "base_layer", None) is outputs
        if hasattr(module, "base_layer") and (unused or is_output or id(module) not in inside):
            parent, _, child = name.rpartition(".")
            setattr(backbone.model.get_submodule(parent), child, module.base_layer)


def _check_untouched(backbone: PretrainedBackbone, before: Mapping[int, tuple[int, int]]) -> None:
    """Refuse a configuration that changes or trains the backbone's own weights.

    Raises:
        UserError: it does; the backbone has to be loaded again.
    """
    for name, parameter in backbone.model.named_parameters():
        known = before.get(id(parameter))
        changed = known is not None and known != (parameter._version, parameter.data_ptr())
        if changed or (known is not None and parameter.requires_grad):
            detach(backbone.model)
            backbone.model.requires_grad_(False)
            raise UserError(
                f"method.config: PEFT would change the backbone's own {name}, which stays frozen. "
                "Leave out bias, and initializations that change weights, such as pissa."
            )


def _widen(root: Any, known: Collection[int]) -> None:
    """Keep new buffers, such as VeRA's random maps, in fp32 beside a backbone in half precision."""
    wide: dict[int, Tensor] = {}  # layers share them
    for module in root.modules():
        for name, buffer in module._buffers.items():
            if buffer is not None and id(buffer) not in known and buffer.is_floating_point():
                module._buffers[name] = wide.setdefault(id(buffer), buffer.float())


def _key_dropout(root: Any, backbone: PretrainedBackbone) -> None:
    site = _SITE
    for parent in list(root.modules()):
        for name, child in parent.named_children():
            own = type(child).__name__
            if isinstance(child, nn.Dropout):
                parent._modules[name] = KeyedDropout(child.p, site, backbone.injection)
                site += 1
            elif "Dropout" in own and not isinstance(child, KeyedDropout) and _rate(child):
                raise UserError(
                    f"method.config: {own} is drawn for a whole batch, and ptrun draws dropout "
                    "row by row; set it to 0."
                )


def _rate(module: Any) -> float:
    return float(getattr(module, "p", 0.0) or 0.0)
