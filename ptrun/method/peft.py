"""Any tuner of PEFT that changes a backbone's modules: IA3, DoRA, VeRA, OFT, LoHa and others.

    ptrun method=peft 'method.config={peft_type: IA3}'

`method.config` is the content of PEFT's configuration; PEFT's defaults hold for what is left out.
The modules to change are PEFT's for the model type, or `target_modules`. The backbone's own weights
stay frozen, and the read-out is `readout`. It needs `pip install 'ptrun[peft]'`.
"""

import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from ptrun.backbone.injection import KeyedDropout
from ptrun.backbone.pretrained import PretrainedBackbone, transposed
from ptrun.backbone.quantization import with_devices
from ptrun.errors import UserError, unknown
from ptrun.method.base import Method

_REFUSED = {
    "PROMPT_TUNING": "type method=prompt_tuning instead",
    "CPT": "type method=cpt instead",
    "MULTITASK_PROMPT_TUNING": "type method=multitask_prompt instead",
    "P_TUNING": "type method=ptuning instead",
    "PREFIX_TUNING": "type method=prefix_peft instead",
    "CARTRIDGE": "type method=ptuning_v2 instead",
    "ADALORA": "it changes its ranks while it trains",
    "ADAPTION_PROMPT": "it replaces the attention of Llama",
    "PVERA": "it draws noise in each pass, which differs by batch",
    "POLY": "it needs a task id with each row",
    "XLORA": "it mixes trained adapters",
    "SHADOW": "it runs a second model",
    "OSF": "it trains the backbone's own weights",
    **dict.fromkeys(("ADAMSS", "BOFT", "FROD", "SHIRA", "UNILORA"), "it needs weights to be made"),
    "TRAINABLE_TOKENS": "it trains words of the vocabulary, which no read-out adds",
}
"""Why ptrun has no such tuner."""
ABOUT = {"peft_type", "task_type", "base_model_name_or_path", "revision", "inference_mode"}
ABOUT |= {"auto_mapping", "peft_version", "modules_to_save", "runtime_config"}
"""The fields of PEFT's configuration that say nothing of the layers."""


class PeftMethod(Method):
    """The layers of a PEFT tuner in a frozen backbone, and a read-out.

    Args:
        backbone: frozen. Its modules change, so it serves one member at a time.
        config: `peft_type`, such as IA3, and the fields of PEFT's configuration of that type.

    >>> from ptrun.testing import read
    >>> method, batch, output = read("method=peft", "method.config={peft_type: IA3}")
    >>> sorted(method.saved())[0]
    'bert.encoder.layer.0.attention.output.dense.ia3_l'
    """

    changes_maps = changes_modules = True

    def __init__(self, *run: Any, config: dict[str, Any]):
        need_peft("method=peft")
        super().__init__(*run)
        self.config = dict(config)
        self.peft_type = str(peft_config(self.config).peft_type.value)
        if self.backbone.architecture.shares_layers:
            raise UserError(
                f"method=peft: the layers of {self.backbone.name} share their weights, and PEFT "
                "has no tuner for that; use method=lora."
            )
        self._seed = int(torch.randint(2**31, (), device="cpu"))
        self._drawn = False
        tuner = self._tuner()
        self.names = {_key(name): name for name in tuner.learned}
        self.changed = list(tuner.layers)
        self.forward_changed = [  # IA3 scales their input, as in a feed-forward block
            name for name, layer in tuner.layers.items() if getattr(layer, "is_feedforward", False)
        ]
        self.prompt = nn.ParameterDict(
            {_key(n): nn.Parameter(torch.zeros(p.shape)) for n, p in tuner.learned.items()}
        )
        detach(self.backbone.model)

    def placed(self) -> None:
        """Put PEFT's layers into the backbone, with this method's tensors in them.

        The first time, the tensors get PEFT's initial values, some of which depend on weights.
        """
        tuner = self._tuner()
        owned = {name: self.prompt[_key(name)] for name in tuner.learned}
        with torch.no_grad():
            for name, parameter in owned.items():
                if not (self._drawn or parameter.is_meta):
                    parameter.copy_(tuner.learned[name])
        self._drawn = True
        adopt(tuner, owned, self.backbone)

    def load_exported(self, tensors: dict[str, Tensor]) -> None:
        """Load exported tensors, which `placed` then keeps."""
        super().load_exported(tensors)
        self._drawn = True

    def saved(self) -> dict[str, Tensor]:
        """Return the learned tensors under the names of PEFT's files, without a prefix."""
        saved: dict[str, Tensor] = {}
        for key, name in self.names.items():
            name = name.replace(f".{_NAME}", "")
            if name.endswith("lora_magnitude_vector.weight"):  # of DoRA
                name = name.removesuffix(".weight")
            saved[name] = self.prompt[key]
        return saved

    @torch.no_grad()
    def merged(self) -> dict[str, Tensor]:
        """Return the parameters of the changed modules as PEFT merges them, by name.

        The backbone's own stay as they are.
        """
        weights = {}
        for path in self.changed:
            layer: Any = self.backbone.model.get_submodule(path)
            parameters = dict(layer.get_base_layer().named_parameters(recurse=False))
            before = {name: parameter.data.clone() for name, parameter in parameters.items()}
            layer.merge()
            layer.merged_adapters.clear()
            for name, parameter in parameters.items():
                weights[f"{path}.{name}"], parameter.data = parameter.data, before[name]
        return weights

    @property
    def options(self) -> dict[str, Any]:
        """`config`, with what the model type needs: the maps' direction, and ELECTRA's for IA3."""
        options, ia3 = dict(self.config), self.backbone.architecture.stock.ia3
        if hasattr(peft_config(options), "fan_in_fan_out"):
            options["fan_in_fan_out"] = transposed(self.backbone)
        if ia3 and self.peft_type == "IA3" and not options.get("target_modules"):
            options |= ia3
        return options

    def _tuner(self) -> Any:
        config = peft_config(self.options)
        decoder = self.readout.reads_decoder
        return tuned_by(self.backbone, config, self._seed, decoder=decoder)


def peft_config(content: Mapping[str, Any]) -> Any:
    """Return PEFT's configuration object of `method.config`, whose keys are checked."""
    from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING

    types = {str(kind.value): made for kind, made in PEFT_TYPE_TO_CONFIG_MAPPING.items()}
    name = str(content.get("peft_type", "")).upper()
    if name in _REFUSED:
        raise UserError(f"method.config.peft_type={name}: not supported; {_REFUSED[name]}.")
    if name not in types:
        usable = sorted(types.keys() - _REFUSED.keys())
        raise UserError(unknown(f"method.config.peft_type={name or 'missing'}", name, usable))
    keys = {key: value for key, value in content.items() if key != "peft_type"}
    allowed = {f.name for f in fields(types[name])} - ABOUT
    for key in keys.keys() - allowed:
        raise UserError(unknown(f"method.config.{key}", key, allowed))
    try:
        return types[name](**keys)
    except (TypeError, ValueError) as error:
        raise UserError(f"method.config: PEFT rejects it: {str(error).splitlines()[0]}") from error


def _key(name: str) -> str:
    return name.replace(".default", "").replace(".", "_")


# Puts the layers of any PEFT tuner into a backbone, with learned tensors that the method owns.
#
# PEFT replaces modules of the backbone. Its new parameters become plain attributes of the layers,
# so the backbone keeps its parameters, checksum, size and precision.

_NAME = "default"
_SITE = 4_000_000  # dropout site, beyond those of LoRA
_BESIDE = ("IA3", "LORA", "VERA")
"""Types whose layers add to a map's output, and do not read its matrix."""
_PEFT_ERRORS = (
    *(ValueError, TypeError, LookupError, AttributeError, NotImplementedError, RuntimeError),
    *(re.error, MemoryError),
)


@dataclass(frozen=True)
class _Tuner:
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
) -> _Tuner:
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

    # 1. Refuse layers that read matrices which are held quantized
    kind, reads = backbone.quantization, getattr(config, "use_dora", False)
    if kind != "none" and (reads or config.peft_type not in _BESIDE):
        name = "DoRA" if reads else config.peft_type
        raise UserError(
            f"hardware.quantization={kind}: {name} reads dense matrices of the backbone; type "
            f"hardware.quantization=none, or use {', '.join(_BESIDE)}."
        )
    # 2. Let PEFT put its layers in
    model = backbone.model
    detach(model)
    before = {id(p): (p._version, p.data_ptr()) for p in model.parameters()}
    buffers = {id(buffer) for buffer in model.buffers()}
    device = next(model.parameters()).device
    tuner_class: Callable[..., Any] = PEFT_TYPE_TO_TUNER_MAPPING[config.peft_type]
    try:
        with (
            warnings.catch_warnings(),
            torch.random.fork_rng(devices=[]),
            torch.device(device if device.type == "meta" else "cpu"),
            with_devices(model),
        ):
            warnings.simplefilter("ignore", UserWarning)  # PEFT's, about what it does by default
            torch.manual_seed(seed)
            root = tuner_class(model, config, _NAME)
    except _PEFT_ERRORS as error:
        detach(model)
        reason = (str(error).splitlines() or ["no reason"])[0]
        if "target modules" in str(error).lower().replace("_", " "):
            names = dict.fromkeys(name.rpartition(".")[2] for name in backbone.linear_maps())
            reason = f"no such target_modules; {backbone.name} has {', '.join(names)}"
        raise UserError(f"method.config: PEFT rejects it: {reason}.") from error
    model.__dict__.pop("peft_config", None)
    _keep_inside(backbone, decoder)
    # 3. Refuse a configuration that changes or trains the backbone's own weights
    for name, parameter in model.named_parameters():
        version = before.get(id(parameter))
        changed = version is not None and version != (parameter._version, parameter.data_ptr())
        if changed or (version is not None and parameter.requires_grad):
            detach(model)
            model.requires_grad_(False)
            raise UserError(
                f"method.config: PEFT would change the backbone's own {name}, which stays frozen. "
                "Leave out bias, and initializations that change weights, such as pissa."
            )
    # 4. Keep new buffers, such as VeRA's random maps, in fp32 beside a backbone in half precision
    wide: dict[int, Tensor] = {}  # layers share them
    for module in root.modules():
        for name, buffer in list(module.named_buffers(recurse=False)):
            if id(buffer) not in buffers and buffer.is_floating_point():
                setattr(module, name, wide.setdefault(id(buffer), buffer.float()))
    layers = {n: m for n, m in model.named_modules() if hasattr(m, "base_layer")}
    fresh = {n: p for n, p in root.named_parameters() if id(p) not in before and p.requires_grad}
    if not fresh:
        raise UserError("method.config: PEFT trains nothing with it; give other target_modules.")
    return _Tuner(root, layers, {n.removeprefix("model."): p for n, p in fresh.items()})


def adopt(tuner: _Tuner, owned: Mapping[str, Tensor], backbone: PretrainedBackbone) -> None:
    """Make the layers use tensors that are not their parameters, and dropout keyed by rows."""
    by_id = {id(parameter): owned[name] for name, parameter in tuner.learned.items()}
    for module in tuner.root.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            if id(parameter) in by_id:
                delattr(module, name)
                object.__setattr__(module, name, by_id[id(parameter)])
    site = _SITE
    for parent in list(tuner.root.modules()):
        for name, child in parent.named_children():
            kind = type(child).__name__
            if isinstance(child, nn.Dropout):
                setattr(parent, name, KeyedDropout(child.p, site, backbone.injection))
                site += 1
                continue
            keyed = isinstance(child, KeyedDropout)
            if "Dropout" in kind and not keyed and getattr(child, "p", None):
                raise UserError(
                    f"method.config: {kind} is drawn for a whole batch, and ptrun draws dropout "
                    "row by row; set it to 0."
                )


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


def need_peft(option: str) -> None:
    """Check that PEFT, which an option needs, is installed."""
    if find_spec("peft") is None:
        raise UserError(f"{option} needs the package peft; type pip install 'ptrun[peft]'.")


def detach(model: nn.Module) -> None:
    """Replace the layers of PEFT by the backbone's own modules."""
    layers: list[tuple[str, Any]] = list(model.named_modules())
    for name, layer in layers:
        if hasattr(layer, "base_layer"):
            parent, _, child = name.rpartition(".")
            setattr(model.get_submodule(parent), child, layer.base_layer)
