"""A run in PEFT's form: the configuration and the tensors of an adapter folder.

| method         | PEFT            | where PEFT can hold it                                        |
|----------------|-----------------|---------------------------------------------------------------|
| prompt_tuning  | PROMPT_TUNING   | tags or words; PEFT's label models read its first vector      |
| ptuning        | PROMPT_TUNING   | the same, if the vectors stand before the text                |
| ptuning_v2     | PREFIX_TUNING   | all layers, positions after it; no T5, ALBERT or DeBERTa      |
| lora           | LORA            | all families but GLM; not Megatron                            |
| peft           | its `peft_type` | all families but GLM; not Megatron                            |
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ptrun.backbone.maps.linear import transposed
from ptrun.exporting.reader import Reader, cannot, reader_of
from ptrun.method.base import Method
from ptrun.method.lora import LoRA, key
from ptrun.method.peft import PeftMethod
from ptrun.method.prompt_tuning import PromptTuning
from ptrun.method.ptuning import PTuning
from ptrun.method.ptuning_v2 import PTuningV2

_WHY = {
    "FineTuning": "it tuned the backbone itself. Its tensors are in prompt.safetensors.",
    "ManualPrompt": "it learned nothing. The backbone with its pattern is the model.",
    "Adapter": "PEFT has no adapters between layers, nor Compacters.",
    "IDPG": "its prompt depends on the text.",
}


@dataclass(frozen=True)
class Form:
    """An adapter of PEFT, and the stock model under it.

    Args:
        reader: the stock model.
        peft_type: PEFT's kind of adapter.
        options: other keys of `adapter_config.json`.
        tensors: the content of `adapter_model.safetensors`.
        length: the vectors before the text, which move its positions in the output.
        cut: the tokens of a row that stand for vectors, which PEFT adds itself.
    """

    reader: Reader
    peft_type: str
    options: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    length: int = 0
    cut: int = 0

    @property
    def shift(self) -> int:
        """How far the positions of a row move in the stock model's output."""
        return self.length - self.cut if self.length else 0

    @property
    def learns_prompt(self) -> bool:
        """Whether PEFT calls it prompt learning: nothing in the model's modules changes."""
        return self.peft_type in ("PROMPT_TUNING", "PREFIX_TUNING")


def form_of(method: Method) -> Form:
    """Return a loaded method in PEFT's form.

    Raises:
        UserError: PEFT cannot express it; the message has the reason.
    """
    made = _MADE.get(type(method))
    if made is None or method.tunes_backbone:
        name = "FineTuning" if method.tunes_backbone else type(method).__name__
        raise cannot(_WHY.get(name, f"PEFT has no method like {name}."))
    if method.backbone.architecture.stock.words is None:
        raise cannot(f"{method.backbone.name} is no model of transformers.")
    return made(method, reader_of(method))


def _prompt_tuning(method: PromptTuning, reader: Reader) -> Form:
    if method.after or method.double_embedding:
        raise cannot(
            "PEFT puts vectors before the whole text, once; this run has method.after=1 or "
            "method.double_embedding=true."
        )
    return _vectors(method, reader, method.exported()["prompt.table"], cut=0)


def _ptuning(method: PTuning, reader: Reader) -> Form:
    vectors = method.exported()["prompt.vectors"]
    return _vectors(method, reader, vectors, cut=len(vectors))


def _vectors(method: Method, reader: Reader, table: Tensor, cut: int) -> Form:
    if reader.task_type == "SEQ_CLS":
        raise cannot(
            "PEFT's label models read the first position, where its vectors stand, and ptrun "
            "reads [CLS]. A tagging task or readout=verbalizer has no such head."
        )
    shape = method.backbone.shape
    options = {
        "num_virtual_tokens": len(table),
        "token_dim": shape.embedding_size,
        "num_transformer_submodules": 1,
        "num_attention_heads": shape.heads,
        "num_layers": shape.layers,
    }
    tensors = {"prompt_embeddings": table.detach(), **_of_head(reader, "base_model.")}
    decodes = method.backbone.architecture.has_decoder
    length = 0 if decodes and reader.words else len(table)
    return Form(reader, "PROMPT_TUNING", options, tensors, length, cut)


def _prefix_tuning(method: PTuningV2, reader: Reader) -> Form:
    _check_prefix(method)
    shape, prefix = method.backbone.shape, method.exported()["prompt.prefix"]
    options = {
        "num_virtual_tokens": method.length,
        "token_dim": shape.heads * shape.head_size,
        "num_transformer_submodules": 1,
        "num_attention_heads": shape.heads,
        "num_layers": shape.layers,
        "encoder_hidden_size": shape.hidden_size,
    }
    tensors = {"prompt_embeddings": prefix.flatten(1), **_of_head(reader, "base_model.")}
    return Form(reader, "PREFIX_TUNING", options, tensors)


def _check_prefix(method: PTuningV2) -> None:
    """Refuse a prefix that PEFT cannot place.

    Raises:
        UserError: the model or an option of the prefix is not PEFT's.
    """
    architecture = method.backbone.architecture
    if architecture.has_decoder:
        raise cannot("PEFT's prefix on T5 has relative positions and mixes the layers' slices.")
    if not architecture.stock.takes_past:
        raise cannot(
            f"{method.backbone.config['model_type']} in transformers takes no past keys and values."
        )
    if len(method.places) < method.backbone.shape.layers:
        raise cannot("PEFT's prefix is in all layers, and this run has method.layers.")
    if method.length < 1:
        raise cannot("method.length=0 learned no prefix.")
    if not method.shift_positions:
        raise cannot("PEFT counts the text's positions after the prefix: method.shift_positions.")


def _lora(method: LoRA, reader: Reader) -> Form:
    tensors: dict[str, Tensor] = {}
    for names in method.shared:
        low_rank: Any = method.lora[key(names[0])]
        start = f"base_model.model.{_stock_name(names[0], reader)}"
        tensors[f"{start}.lora_A.weight"] = low_rank.down.weight.detach()
        tensors[f"{start}.lora_B.weight"] = low_rank.up.weight.detach()
        rank = low_rank.down.out_features
    options = {
        "r": rank,
        "lora_alpha": method.alpha,
        "lora_dropout": method.dropout,
        "target_modules": _targets([names[0] for names in method.shared], reader),
        "fan_in_fan_out": transposed(method.backbone),
    }
    return Form(reader, "LORA", options, tensors | _of_head(reader, "base_model.model."))


def _peft(method: PeftMethod, reader: Reader) -> Form:
    options = {key: value for key, value in method.options.items() if key != "peft_type"}
    options["target_modules"] = _targets(method.changed, reader)
    if method.peft_type == "IA3":
        options["feedforward_modules"] = _targets(method.forward_changed, reader)
    tensors = {
        f"base_model.model.{_stock_name(name, reader)}": tensor.detach()
        for name, tensor in method.saved().items()
    }
    tensors |= _of_head(reader, "base_model.model.")
    return Form(reader, method.peft_type, options, tensors)


def _targets(paths: list[str], reader: Reader) -> list[str]:
    """Return the changed modules by their whole path: the last names alone may match others."""
    return sorted(_stock_name(path, reader) for path in paths)


def _stock_name(path: str, reader: Reader) -> str:
    """Return the path of a module in the stock model."""
    inside = path.startswith(("encoder.block.", "encoder.final"))
    return f"transformer.{path}" if inside and not reader.words else path


def _of_head(reader: Reader, start: str) -> dict[str, Tensor]:
    return {start + name: tensor for name, tensor in reader.tensors.items()}


_MADE: dict[type[Method], Callable[[Any, Reader], Form]] = {
    PromptTuning: _prompt_tuning,
    PTuning: _ptuning,
    PTuningV2: _prefix_tuning,
    LoRA: _lora,
    PeftMethod: _peft,
}
