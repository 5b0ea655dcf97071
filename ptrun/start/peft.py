"""`start=peft:DIR`: begin from the adapter of a PEFT folder.

| adapter                   | method that can start from it                                       |
|---------------------------|---------------------------------------------------------------------|
| PROMPT_TUNING, P_TUNING   | one that learns input vectors: prompt_tuning, ptuning without       |
|                           | encoder                                                             |
| CPT                       | the same, or cpt                                                    |
| MULTITASK_PROMPT_TUNING   | multitask_prompt, if the rank is 1; of one task the same as above   |
| PREFIX_TUNING, CARTRIDGE  | ptuning_v2 with keys and values learned directly                    |
| LORA                      | lora of the same rank and modules; another alpha is folded in       |
| the others                | peft, ia3, dora, vera with the same configuration                   |

Lengths, ranks and modules must be equal. The head in the folder is not copied, as with `run:`.
"""

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from ptrun.files import from_json, opened, read_bytes
from ptrun.method.base import Method
from ptrun.method.cpt import CPT
from ptrun.method.lora import LoRA, key
from ptrun.method.multitask_prompt import MultitaskPrompt
from ptrun.method.peft import ABOUT, PeftMethod, peft_config
from ptrun.method.ptuning_v2 import PTuningV2

_LOG = logging.getLogger(__name__)
_CONFIG, _TENSORS, _PICKLED = "adapter_config.json", "adapter_model.safetensors", ".bin"
_VECTORS = ("PROMPT_TUNING", "P_TUNING", "CPT", "MULTITASK_PROMPT_TUNING")
_PREFIXES = ("PREFIX_TUNING", "CARTRIDGE")
_PROMPT = "prompt_embeddings"
_KINDS = ("answer", "literal", "field", "literal")  # of tokens of a CPT, by the rest mod 4
_HEADS = ("classifier", "score", "qa_outputs", "pooler", "pre_classifier", "dense", "out_proj")
_CHANGE_THE_BASE = ("pissa", "olora", "corda", "loftq", "lora_ga")
_FREE = {*ABOUT, "target_modules", "feedforward_modules", "fan_in_fan_out"}
_FREE |= {"save_projection", "exclude_modules", "layers_pattern"}


@dataclass(frozen=True)
class PeftAdapter:
    """The adapter of a PEFT folder: its `adapter_config.json`, and 16 digits over both files."""

    folder: Path
    config: Mapping[str, Any]
    digest: str

    @property
    def kind(self) -> str:
        """PEFT's `peft_type`."""
        return str(self.config.get("peft_type"))

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors of the adapter in fp32, without those of a head."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            tensors = load_file(self.folder / _TENSORS)
        except SafetensorError as error:
            raise self.wrong(f"{_TENSORS} is damaged ({error}).") from error
        start = "base_model.model."
        return {n.removeprefix(start): t.float() for n, t in tensors.items()}

    def wrong(self, reason: str) -> UserError:
        """Return the refusal of this adapter."""
        return UserError(f"start=peft:{self.folder}: {reason}")


def read(folder: Path) -> PeftAdapter:
    """Return the adapter of a folder; its tensors are read later."""
    where = f"start=peft:{folder}"
    for name in (_CONFIG, _TENSORS):
        if not (folder / name).is_file():
            pickled = name == _TENSORS and (folder / name).with_suffix(_PICKLED).is_file()
            why = "only a pickled adapter_model.bin, which is never opened" if pickled else "none"
            raise UserError(
                f"{where}: expected {name}, found {why}. Give a folder that PEFT's save_pretrained "
                "wrote."
            )
    text = read_bytes(folder / _CONFIG, links=True)
    with opened(folder / _TENSORS, links=True) as source:  # it may be larger than memory
        content = hashlib.file_digest(source, "sha256").digest()
    try:
        config = from_json(text)
    except ValueError as error:
        raise UserError(f"{where}: {_CONFIG} is no JSON ({error}).") from error
    if not isinstance(config, dict) or "peft_type" not in config:
        raise UserError(f"{where}: {_CONFIG} has no peft_type.")
    return PeftAdapter(folder, config, hashlib.sha256(text + content).hexdigest()[:16])


def check(
    adapter: PeftAdapter,
    method: type[Method],
    node: Mapping[str, Any],
    backbone: PretrainedBackbone,
) -> None:
    """Refuse an adapter that a method cannot start from, before weights are read."""
    fits = {
        **dict.fromkeys(_VECTORS, method.learns_vectors(node)),
        **dict.fromkeys(_PREFIXES, issubclass(method, PTuningV2)),
        "LORA": issubclass(method, LoRA | PeftMethod) and not method.learns_vectors(node),
    }.get(adapter.kind, issubclass(method, PeftMethod))
    if not fits:
        raise adapter.wrong(
            f"it is a {adapter.kind}, from which {method.__name__} as configured cannot start; "
            "type the method that learns one."
        )
    base = str(adapter.config.get("base_model_name_or_path") or "")
    if base in (backbone.hub, backbone.name, str(backbone.folder)):
        return
    if base and backbone.hub and base.count("/") == 1 and not Path(base).exists():
        raise adapter.wrong(f"it was trained on {base}, and this run is on {backbone.hub}.")
    _LOG.warning("start=peft:%s was trained on %s", adapter.folder, base or "an unnamed model")


@torch.no_grad()
def begin(adapter: PeftAdapter, method: Method) -> None:
    """Copy an adapter into a placed method; its head may be left out, and nothing else."""
    config = adapter.config
    saved = [name for name in config.get("modules_to_save") or () if name not in _HEADS]
    begun = [str(value).lower() for key, value in config.items() if key.startswith("init_")]
    if saved:
        raise adapter.wrong(f"it also holds the module {saved[0]}, which would be lost.")
    if config.get("bias", "none") != "none":
        raise adapter.wrong(f"it also tunes biases (bias={config['bias']}), which would be lost.")
    if config.get("trainable_token_indices"):
        raise adapter.wrong("it also tunes embeddings of tokens, which would be lost.")
    if changed := [kind for kind in begun if kind.startswith(_CHANGE_THE_BASE)]:
        raise adapter.wrong(f"its start ({changed[0]}) has changed the backbone's own weights.")
    inside = _inside(adapter.tensors(), method.backbone.model)
    if adapter.kind in _VECTORS:  # of an encoder-decoder's two tables PEFT uses the first
        count = int(config["num_virtual_tokens"])
        tensors: dict[str, Tensor] = {}
        vectors = _tensor(adapter, inside, _PROMPT)[:count]
        if adapter.kind == "MULTITASK_PROMPT_TUNING":
            vectors, tensors = _multitask(adapter, method, inside, vectors)
        if adapter.kind == "CPT" and isinstance(method, CPT):
            kinds = [_KINDS[kind % 4] if kind else "" for kind in config["cpt_tokens_type_mask"]]
            method.begin(config["cpt_token_ids"], kinds)
            vectors = vectors.to(method.prompt.table) - method.prompt.base
            if bool((vectors.norm(dim=1, keepdim=True) > method.prompt.radius + 1e-4).any()):
                raise adapter.wrong(
                    "its vectors are too far from their tokens; type method.epsilon="
                    f"{config['opt_projection_epsilon']} method.format_epsilon="
                    f"{config['opt_projection_format_epsilon']}."
                )
        prompt: Any = method.prompt
        _check_shape(adapter, "prompt", vectors, prompt.table)
        prompt.begin(vectors.to(prompt.table))
    elif isinstance(method, LoRA):
        tensors = _lora(adapter, method, inside)
    elif isinstance(method, PeftMethod):
        tensors = _peft(adapter, method, inside)
    else:
        assert isinstance(method, PTuningV2)
        if method.prompt.mlp is not None or method.prompt.project is not None:
            raise adapter.wrong(
                "it holds finished keys and values, which cannot be undone. Type "
                "method.reparameterization=embedding method.prefix_kind=kv."
            )
        finished = {PTuningV2.finished: _tensor(adapter, inside, _PROMPT)}
        tensors = dict(method.unfolded(finished) or {})
    parameters = {**method.learned(), **dict(method.named_buffers())}
    for name, tensor in tensors.items():
        _check_shape(adapter, name, tensor, parameters[name])
        parameters[name].copy_(tensor)


def _multitask(
    adapter: PeftAdapter, method: Method, tensors: Mapping[str, Tensor], shared: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the shared prompt, and u and v of its tasks, or the finished prompt of one task."""
    columns = _tensor(adapter, tensors, "prefix_task_cols")[:, : len(shared)]  # [K, P, rank]
    rows = _tensor(adapter, tensors, "prefix_task_rows")
    if adapter.config.get("num_transformer_submodules") == 2:
        raise adapter.wrong("it also has vectors before the decoder's text, which would be lost.")
    if isinstance(method, MultitaskPrompt) and rows.shape[1] == 1:
        return shared, dict(method.unfolded({"prompt.u": columns[..., 0], "prompt.v": rows[:, 0]}))
    if len(rows) > 1:
        raise adapter.wrong(
            f"it has {len(rows)} tasks of rank {rows.shape[1]}. method=multitask_prompt starts "
            "from several tasks of rank 1, other methods from one task."
        )
    return shared * (columns @ rows)[0], {}


def _lora(adapter: PeftAdapter, method: LoRA, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return low-rank maps; the ratio of both scales goes into the second one."""
    config = adapter.config
    for option in ("use_dora", "rank_pattern", "alpha_pattern"):
        if config.get(option):
            raise adapter.wrong(f"it has {option}, which method=lora has not; see method=dora.")
    if not (config.get("r") and config.get("lora_alpha")):
        raise adapter.wrong(f"{_CONFIG} has no r or no lora_alpha.")
    rank = int(config["r"])
    scale = config["lora_alpha"] / (rank**0.5 if config.get("use_rslora") else rank)
    maps: dict[str, Tensor] = {}
    left = {name for name in tensors if ".lora_" in name}
    for names in method.shared:
        for part, side in (("lora_A", "down"), ("lora_B", "up")):
            name = f"{names[0]}.{part}.weight"
            left.discard(name)
            tensor = _tensor(adapter, tensors, name)
            factor = 1.0 if side == "down" else scale * tensor.shape[1] / method.alpha
            maps[f"lora.{key(names[0])}.{side}.weight"] = tensor * factor
    if left:
        raise adapter.wrong(f"it changes {min(left)}, which method.targets does not.")
    return maps


def _peft(
    adapter: PeftAdapter, method: PeftMethod, tensors: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Return the tensors of any tuner."""
    for option, value in peft_config(method.config).to_dict().items():
        free = option in _FREE or "dropout" in option or option.startswith("init_")
        theirs = adapter.config.get(option, value)
        if not free and theirs != value:
            raise adapter.wrong(f"{option} is {theirs!r} there and {value!r} in method.config.")
    if adapter.kind != str(method.peft_type):
        raise adapter.wrong(f"it is a {adapter.kind}, and this method a {method.peft_type}.")
    modules = adapter.config.get("feedforward_modules") or []
    ends = tuple(f".{_place(name)}" for name in modules)
    scaled = [name for name in method.changed if f".{name}".endswith(ends)]
    if adapter.kind == "IA3" and scaled != method.forward_changed:
        raise adapter.wrong(
            f"it scales the inputs of {', '.join(modules) or 'no map'}; give the same "
            "method.config.feedforward_modules."
        )
    names = zip(method.saved(), method.names, strict=True)
    return {f"prompt.{name}": _tensor(adapter, tensors, saved) for saved, name in names}


def _inside(tensors: Mapping[str, Tensor], model: Any) -> dict[str, Tensor]:
    """Return tensors by their names in ptrun's model, also those of a model without a head."""
    places = {_place(name): tensor for name, tensor in tensors.items()}
    base = f"{model.base_model_prefix}."
    headless = hasattr(model, base[:-1]) and not any(name.startswith(base) for name in places)
    return {f"{base}{n}" if headless and "." in n else n: tensor for n, tensor in places.items()}


def _place(name: str) -> str:
    """Return the name of a tensor in ptrun's model, where T5's encoder stands alone."""
    return name.removeprefix("transformer.") if ".block." in name else name


def _tensor(adapter: PeftAdapter, tensors: Mapping[str, Tensor], name: str) -> Tensor:
    if name not in tensors:
        raise adapter.wrong(f"{_TENSORS} has no {name}; the modules or the model differ.")
    return tensors[name]


def _check_shape(adapter: PeftAdapter, name: str, tensor: Tensor, parameter: Tensor) -> None:
    if tensor.shape != parameter.shape:
        raise adapter.wrong(
            f"{name} is {list(tensor.shape)} there and {list(parameter.shape)} here. Give the same "
            "method.length, method.rank or method.config, and the same backbone."
        )
