"""Any tuner of PEFT that changes a backbone's modules: IA3, DoRA, VeRA, OFT, LoHa and others.

    ptrun method=peft 'method.config={peft_type: IA3}'

`method.config` is the content of PEFT's configuration; PEFT's defaults hold for what is left out.
The modules to change are PEFT's for the model type, or `target_modules`. The backbone's own weights
stay frozen, and the read-out is `readout`. It needs `pip install 'ptrun[peft]'`.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor, nn

from ptrun.backbone.maps.linear import transposed
from ptrun.backbone.peft.layers import detach, need_peft
from ptrun.backbone.peft.tuner import adopt, tuned_by
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.config.suggest import unknown
from ptrun.errors import UserError
from ptrun.method.base import Method
from ptrun.readout.reading import Reading
from ptrun.task.base import Task

_OWN = {
    "PROMPT_TUNING": "method=prompt_tuning",
    "P_TUNING": "method=ptuning",
    "PREFIX_TUNING": "method=prefix_peft",
    "MULTITASK_PROMPT_TUNING": "method=prompt_tuning",
    "CPT": "method=prompt_tuning",
    "CARTRIDGE": "method=ptuning_v2",
}
_REFUSED = {
    "ADALORA": "changes its ranks while it trains",
    "ADAPTION_PROMPT": "replaces the attention of Llama",
    "PVERA": "draws noise in each pass, which differs by batch",
    "POLY": "needs a task id with each row",
    "XLORA": "mixes trained adapters",
    "SHADOW": "runs a second model",
    "OSF": "trains the backbone's own weights",
    **dict.fromkeys(("ADAMSS", "BOFT", "FROD", "SHIRA", "UNILORA"), "needs weights for its shapes"),
    "TRAINABLE_TOKENS": "trains words of the vocabulary, which no read-out adds",
}
_ABOUT = {"peft_type", "task_type", "base_model_name_or_path", "revision", "inference_mode"}
_ABOUT |= {"auto_mapping", "peft_version", "modules_to_save", "runtime_config"}


class PeftMethod(Method):
    """The layers of a PEFT tuner in a frozen backbone, and a read-out.

    Args:
        backbone: frozen. Its modules change, so it serves one member at a time.
        config: `peft_type`, such as IA3, and the fields of PEFT's configuration of that type.

    Raises:
        UserError: PEFT is absent, or it or ptrun rejects the configuration.
    """

    changes_maps = changes_modules = True

    def __init__(
        self,
        backbone: PretrainedBackbone,
        task: Task,
        reading: Reading | None = None,
        *,
        config: dict[str, Any],
    ):
        need_peft("method=peft")
        super().__init__(backbone, task, reading)
        self.config = dict(config)
        self.peft_type = str(_type_of(self.config).value)
        _check_backbone(backbone)
        self._seed = int(torch.randint(2**31, (), device="cpu"))
        self._drawn = False
        tuner = self._tuner()
        self.names = {_key(name): name for name in tuner.learned}
        self.changed = list(tuner.layers)
        self.forward_changed = [n for n, own in tuner.layers.items() if _scales_input(own)]
        self.prompt = nn.ParameterDict(
            {_key(n): nn.Parameter(torch.zeros(p.shape)) for n, p in tuner.learned.items()}
        )
        detach(backbone.model)

    def placed(self) -> None:
        """Put PEFT's layers into the backbone, with this method's tensors in them.

        The first time, the tensors get PEFT's initial values, some of which depend on weights.
        """
        tuner = self._tuner()
        owned = {name: self.prompt[_key(name)] for name in tuner.learned}
        if not self._drawn:
            _copy(tuner.learned, owned)
            self._drawn = True
        adopt(tuner, owned, self.backbone)

    def load_exported(self, tensors: dict[str, Tensor]) -> None:
        """Load exported tensors, which `placed` then keeps.

        Raises:
            UserError: a tensor is missing.
        """
        super().load_exported(tensors)
        self._drawn = True

    def saved(self) -> dict[str, Tensor]:
        """Return the learned tensors under the names of PEFT's files, without a prefix."""
        return {_saved_name(name): self.prompt[key] for key, name in self.names.items()}

    @property
    def options(self) -> dict[str, Any]:
        """`config`, with what the model type needs: the maps' direction, and ELECTRA's for IA3."""
        made, ia3 = dict(self.config), self.backbone.architecture.stock.ia3
        if hasattr(peft_config(made), "fan_in_fan_out"):
            made["fan_in_fan_out"] = transposed(self.backbone)
        if ia3 and self.peft_type == "IA3" and not made.get("target_modules"):
            made |= ia3
        return made

    def _tuner(self) -> Any:
        config = peft_config(self.options)
        decoder = self.readout.reads_decoder
        return tuned_by(self.backbone, config, self._seed, decoder=decoder)


def peft_config(content: Mapping[str, Any]) -> Any:
    """Return PEFT's configuration object of a checked `method.config`."""
    from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING

    keys = {key: value for key, value in content.items() if key != "peft_type"}
    try:
        return PEFT_TYPE_TO_CONFIG_MAPPING[_type_of(content)](**keys)
    except (TypeError, ValueError) as error:
        raise UserError(f"method.config: PEFT rejects it: {str(error).splitlines()[0]}") from error


def _type_of(content: Mapping[str, Any]) -> Any:
    """Return the `peft_type` of a configuration, whose keys are checked.

    Raises:
        UserError: the type or a key is unknown, or ptrun does not support it.
    """
    from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING

    known = {str(kind.value): kind for kind in PEFT_TYPE_TO_CONFIG_MAPPING}
    usable = sorted(known.keys() - _OWN.keys() - _REFUSED.keys())
    name = str(content.get("peft_type", "")).upper()
    if name in _OWN:
        raise UserError(f"method.config.peft_type={name}: type {_OWN[name]} instead.")
    if name in _REFUSED:
        raise UserError(f"method.config.peft_type={name}: it {_REFUSED[name]}; not supported.")
    if name not in usable:
        raise UserError(unknown(f"method.config.peft_type={name or 'missing'}", name, usable))
    allowed = {f.name for f in fields(PEFT_TYPE_TO_CONFIG_MAPPING[known[name]])} - _ABOUT
    for key in content.keys() - {"peft_type"}:
        if key not in allowed:
            raise UserError(unknown(f"method.config.{key}", key, allowed))
    return known[name]


def _check_backbone(backbone: PretrainedBackbone) -> None:
    if backbone.architecture.shares_layers:
        raise UserError(
            f"method=peft: the layers of {backbone.name} share their weights, and PEFT has no "
            "tuner for that; use method=lora."
        )


def _scales_input(layer: Any) -> bool:
    """Return whether a layer of IA3 scales the input of its map, as in a feed-forward block."""
    return bool(getattr(layer, "is_feedforward", False))


@torch.no_grad()
def _copy(values: Mapping[str, Tensor], owned: Mapping[str, Tensor]) -> None:
    for name, value in values.items():
        if not owned[name].is_meta:
            owned[name].copy_(value)


def _key(name: str) -> str:
    return name.replace(".default", "").replace(".", "_")


def _saved_name(name: str) -> str:
    """Return the name of a tensor in PEFT's files: without the name of the adapter."""
    plain = name.replace(".default", "")
    dora = "lora_magnitude_vector"
    return plain.removesuffix(".weight") if plain.endswith(f"{dora}.weight") else plain
