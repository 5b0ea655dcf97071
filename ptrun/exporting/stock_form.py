"""A run in PEFT's form: the configuration and the tensors of an adapter folder.

| method         | PEFT            | where PEFT can hold it                                        |
|----------------|-----------------|---------------------------------------------------------------|
| prompt_tuning, | PROMPT_TUNING   | vectors before the text; no head on T5                        |
| residual_prompt|                 |                                                               |
| multitask_     | PROMPT_TUNING   | the same, of a run that learned one task                      |
| prompt         |                 |                                                               |
| cpt            | PROMPT_TUNING   | the finished vectors                                          |
| ptuning        | PROMPT_TUNING   | the same, if the vectors stand before the text                |
| ptuning_v2     | PREFIX_TUNING   | all layers, positions after it; no T5, ALBERT or DeBERTa      |
| cartridge      | CARTRIDGE       | the same                                                      |
| lora           | LORA            | all families but GLM; not Megatron                            |
| peft           | its `peft_type` | all families but GLM; not Megatron                            |

A tuned backbone is no adapter: `whole_of` and `write_whole` make a folder of transformers of it.
"""

import json
import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ptrun.backbone.pretrained import transposed
from ptrun.errors import UserError
from ptrun.exporting import stock_load as loading
from ptrun.method.base import Method
from ptrun.method.cartridge import Cartridge
from ptrun.method.cpt import CPT
from ptrun.method.fine_tuning import FineTuning
from ptrun.method.lora import LoRA, key
from ptrun.method.multitask_prompt import MultitaskPrompt
from ptrun.method.peft import PeftMethod
from ptrun.method.prompt_tuning import PromptTuning
from ptrun.method.ptuning import PTuning
from ptrun.method.ptuning_v2 import PTuningV2
from ptrun.method.residual_prompt import ResidualPrompt
from ptrun.readout.base import Batch, Features, collate
from ptrun.readout.class_words import ClassWords
from ptrun.readout.cloze import Cloze
from ptrun.readout.head import LabelHead, row_limit
from ptrun.readout.heads import TokenHead
from ptrun.readout.languages import answer_frame

# The stock model that answers as a read-out does: a class of transformers, and its head's tensors.
#
# | read-out            | class                                | head                              |
# |---------------------|--------------------------------------|-----------------------------------|
# | head, one label     | AutoModelForSequenceClassification   | `classifier`, with a pooler if one|
# | head, one a word    | AutoModelForTokenClassification      | `classifier`, on Llama `score`    |
# | verbalizer          | AutoModelForMaskedLM, ForCausalLM or | the pre-trained one               |
# |                     | ForSeq2SeqLM                         |                                   |
# | another head of one | AutoModel                            | `load.py`, beside head.json and   |
# | label               |                                      | head.safetensors                  |


@dataclass(frozen=True)
class Reader:
    """A stock model that reads an answer.

    Args:
        auto: the class of transformers.
        task_type: PEFT's word for it.
        labels: the labels of a head, in order; empty for words.
        tensors: the trained tensors of the model's own modules or of a head that it lacks, by name.
        modules: the names of these modules.
        head: what `head.json` has of a head that no stock class has (`stock_load` reads it).
        prefix: what the names of the backbone's modules have in front, which this class lacks.
        inside: what they have in its place, if it holds the backbone as its text part.
    """

    auto: str
    task_type: str
    labels: tuple[str, ...] = ()
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    modules: tuple[str, ...] = ()
    head: Mapping[str, Any] = field(default_factory=dict)
    prefix: str = ""
    inside: str = ""

    @property
    def words(self) -> bool:
        """Whether it answers by words of the pre-trained head."""
        return not self.modules and not self.head


_CANNOT = "PEFT cannot hold this run: "


def cannot(reason: str) -> UserError:
    """Return the refusal of a run that PEFT cannot hold."""
    return UserError(f"export: {_CANNOT}{reason}")


def reader_of(method: Method) -> Reader:
    """Return the stock model that reads a method's answers."""
    readout, stock = method.readout, method.backbone.architecture.stock
    if readout.settles:
        raise cannot("it answers with several labels, by thresholds that no stock class applies.")
    words = isinstance(readout, Cloze) and not isinstance(readout, ClassWords)
    if "text_of" in method.backbone.config:
        return _whole(method, words=words)
    if words and stock.words:
        return Reader(*stock.words)
    if type(readout) is TokenHead:
        if (name := stock.tags) is None:
            kind = method.backbone.config["model_type"]
            raise cannot(f"transformers has no class that tags words of {kind} by one linear map.")
        labels, linear = tuple(map(str, method.task.labels)), _named(name, readout.linear)
        return Reader("AutoModelForTokenClassification", "TOKEN_CLS", labels, linear, (name,))
    if isinstance(readout, LabelHead):
        return _label(method, readout)
    raise cannot(
        f"no stock class of transformers has its read-out ({type(readout).__name__}). Labels of "
        "a text, tags of words, and verbalizers can be exported."
    )


def _whole(method: Method, *, words: bool) -> Reader:
    """Return the model that also reads images or sound, whose text part the backbone is."""
    import transformers
    from transformers.models.auto import modeling_auto

    backbone, kind = method.backbone, method.backbone.config["text_of"]
    able = words and isinstance(method, FineTuning | LoRA | PeftMethod)
    if not able or kind not in modeling_auto.MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES:
        raise cannot(
            f"the stock class is the whole {kind} model, which has LoRA and tuned weights of its "
            "text part, no prompt and no head. ptrun serve RUN answers with it."
        )
    auto, inside = "AutoModelForMultimodalLM", ""
    if backbone.folder:
        config = transformers.AutoConfig.from_pretrained(backbone.folder)
        with torch.device("meta"):
            whole = getattr(transformers, auto).from_config(config)
        body = type(backbone.model.base_model)
        inside = next(f"{name}." for name, m in whole.named_modules() if type(m) is body)
    return Reader(auto, "CAUSAL_LM", prefix=f"{backbone.model.base_model_prefix}.", inside=inside)


def _label(method: Method, readout: LabelHead) -> Reader:
    """Return the reader of one label a text; its own where the stock head differs."""
    stock = method.backbone.architecture.stock
    layer = method.backbone.model.pooler if readout.reads_pooler else readout.dense
    dense = {} if layer is None else _named("dense", layer)  # the layer before tanh
    # vectors before the text move the position that a stock head reads
    moves = isinstance(method, PromptTuning | PTuning)
    if readout.pooler == "mean" or stock.dense is None or not dense or moves:
        return _own(method, readout, dense)
    labels = tuple(map(str, method.task.labels)) or ("number",)
    kind = "AutoModelForSequenceClassification", "SEQ_CLS", labels
    linear = _named(stock.labels, readout.linear)
    from_checkpoint = readout.dense is None and method.backbone.has_pooler
    if from_checkpoint and not method.tunes_backbone:
        return Reader(*kind, linear, ("classifier",))
    tensors = _named(stock.dense, layer) | linear
    inside = stock.dense.startswith("classifier.")
    return Reader(*kind, tensors, ("classifier",) if inside else ("classifier", "pooler"))


def _own(method: Method, readout: LabelHead, dense: Mapping[str, Tensor]) -> Reader:
    backbone, task = method.backbone, method.task
    architecture, config = backbone.architecture, backbone.model.config
    labels = [str(label) for label in task.labels] or ["number"]
    facts: dict[str, Any] = {
        "labels": labels,
        "unit": float(getattr(task, "unit", 1.0)),
        "pooling": "first",
        "activation": getattr(config, "pooler_hidden_act", "tanh") if dense else None,
        "most_tokens": row_limit(task, method.room()),
    }
    if readout.pooler == "mean":
        facts["pooling"] = "mean"
    elif architecture.left_to_right and not architecture.has_decoder:
        facts["pooling"] = "last"
    if architecture.has_decoder:
        facts["decoder_start"], _ = answer_frame(backbone, task)
    tensors = {**dense, **_named("labels", readout.linear)}
    prefix = f"{backbone.model.base_model_prefix}." if backbone.model.base_model_prefix else ""
    return Reader("AutoModel", "FEATURE_EXTRACTION", tuple(labels), tensors, (), facts, prefix)


def _named(name: str, layer: Any) -> dict[str, Tensor]:
    """Return the tensors of a layer that has this name in the stock model."""
    return {f"{name}.{n}": p.detach() for n, p in layer.named_parameters()}


_WHY = {
    "FineTuning": "it tuned the backbone itself. Type --to transformers DIR.",
    "ManualPrompt": "it learned nothing. The backbone with its pattern is the model.",
    "Adapter": "PEFT has no adapters between layers, nor Compacters.",
    **dict.fromkeys(("IDPG", "Attempt"), "its prompt depends on the text."),
}


@dataclass(frozen=True)
class PeftForm:
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
        return self.peft_type in ("PROMPT_TUNING", "PREFIX_TUNING", "CARTRIDGE")


def form_of(method: Method) -> PeftForm:
    """Return a loaded method in PEFT's form; what PEFT cannot express is refused."""
    form_maker = _MADE.get(type(method))
    if form_maker is None or method.tunes_backbone:
        name = "FineTuning" if method.tunes_backbone else type(method).__name__
        raise cannot(_WHY.get(name, f"PEFT has no method like {name}."))
    if method.backbone.architecture.stock.words is None:
        raise cannot(f"{method.backbone.name} is no model of transformers.")
    form = form_maker(method, reader_of(method))
    if form.reader.head:
        return form
    start = "base_model." if form.learns_prompt else "base_model.model."
    modules = {start + name: tensor for name, tensor in form.reader.tensors.items()}
    return replace(form, tensors={**form.tensors, **modules})


def _vectors(method: PromptTuning | PTuning, reader: Reader) -> PeftForm:
    """Return vectors before the text; of P-tuning, tokens of a row stand for them."""
    if isinstance(method, PTuning):
        table = method.exported()["prompt.vectors"]
        cut = len(table)
    elif method.after or method.double_embedding:
        raise cannot(
            "PEFT puts vectors before the whole text, once; this run has method.after=1 or "
            "method.double_embedding=true."
        )
    else:
        table, cut = method.exported()["prompt.table"], 0
        table = method.of(0) if isinstance(method, MultitaskPrompt) else table
    decodes = method.backbone.architecture.has_decoder
    if decodes and reader.head:
        raise cannot("PEFT's vectors on an encoder-decoder need a read-out of words, a verbalizer.")
    options = _sizes(method, len(table), method.backbone.shape.embedding_size)
    length = 0 if decodes and reader.words else len(table)
    tensors = {"prompt_embeddings": table.detach()}
    return PeftForm(reader, "PROMPT_TUNING", options, tensors, length, cut)


def _sizes(method: Method, count: int, width: int) -> dict[str, int]:
    """Return the options of a prompt of `count` vectors."""
    return {
        "num_virtual_tokens": count,
        "token_dim": width,
        "num_transformer_submodules": 1,
        "num_attention_heads": method.backbone.shape.heads,
        "num_layers": method.backbone.shape.layers,
    }


def _prefix_tuning(method: PTuningV2, reader: Reader) -> PeftForm:
    architecture, shape = method.backbone.architecture, method.backbone.shape
    if architecture.has_decoder:
        raise cannot("PEFT's prefix in an encoder-decoder mixes the layers' slices.")
    if not architecture.stock.takes_past:
        raise cannot(
            f"{method.backbone.config['model_type']} in transformers takes no past keys and values."
        )
    if len(method.places) < shape.layers:
        raise cannot("PEFT's prefix is in all layers, and this run has method.layers.")
    if method.length < 1:
        raise cannot("method.length=0 learned no prefix.")
    if not method.shift_positions:
        raise cannot("PEFT counts the text's positions after the prefix: method.shift_positions.")
    options = _sizes(method, method.length, shape.heads * shape.head_size)
    tensors = {"prompt_embeddings": method.exported()["prompt.prefix"].flatten(1)}
    if isinstance(method, Cartridge):
        options["num_frozen_tokens"] = method.length - len(method.prompt.table)
        return PeftForm(reader, "CARTRIDGE", options, tensors)
    options["encoder_hidden_size"] = shape.hidden_size
    return PeftForm(reader, "PREFIX_TUNING", options, tensors)


def _lora(method: LoRA, reader: Reader) -> PeftForm:
    tensors: dict[str, Tensor] = {}
    for names in method.shared:
        low_rank: Any = method.lora[key(names[0])]
        start = f"base_model.model.{_stock_name(names[0], reader)}"
        tensors[f"{start}.lora_A.weight"] = low_rank.down.weight.detach()
        tensors[f"{start}.lora_B.weight"] = low_rank.up.weight.detach()
    options = {
        "r": low_rank.down.out_features,
        "lora_alpha": method.alpha,
        "lora_dropout": method.dropout,
        "target_modules": sorted(_stock_name(names[0], reader) for names in method.shared),
        "fan_in_fan_out": transposed(method.backbone),
    }
    return PeftForm(reader, "LORA", options, tensors)


def _peft(method: PeftMethod, reader: Reader) -> PeftForm:
    options = {key: value for key, value in method.options.items() if key != "peft_type"}
    changed = {"target_modules": method.changed}  # by whole paths: last names may match others
    if method.peft_type == "IA3":
        changed["feedforward_modules"] = method.forward_changed
    for option, paths in changed.items():
        options[option] = sorted(_stock_name(path, reader) for path in paths)
    tensors = {
        f"base_model.model.{_stock_name(name, reader)}": tensor.detach()
        for name, tensor in method.saved().items()
    }
    return PeftForm(reader, method.peft_type, options, tensors)


def _stock_name(path: str, reader: Reader) -> str:
    """Return the path of a module in the stock model."""
    if reader.head or (reader.inside and path.startswith(reader.prefix)):
        return reader.inside + path.removeprefix(reader.prefix)
    inside = path.startswith(("encoder.block.", "encoder.final", "shared."))
    return f"transformer.{path}" if inside and not reader.words else path


WHOLE = "transformers"
"""The `peft_type` of a tuned backbone, which has no adapter."""


def whole_of(method: Method) -> PeftForm:
    """Return a method with a tuned backbone as a stock model without an adapter."""
    if type(method) not in (FineTuning, LoRA, PeftMethod):
        raise UserError(
            "export: --to transformers writes a backbone that method=fine_tuning tuned, or with "
            "LoRA or IA3 merged; no weights hold what this run learned. Type --to peft DIR."
        )
    if method.backbone.architecture.stock.words is None:
        raise UserError(f"export: {method.backbone.name} is no model of transformers.")
    return PeftForm(reader_of(method), WHOLE, {}, {})


def write_whole(folder: Path, form: PeftForm, method: Method, _base: str) -> None:
    """Write the stock model with the tuned weights; it must have each tensor that was learned."""
    reader, backbone = form.reader, method.backbone
    stock = plain_model(reader, backbone.folder)
    held = stock.state_dict()
    tensors = {_stock_name(n, reader): t for n, t in backbone.model.state_dict().items()}
    modules = {} if reader.head else reader.tensors
    merged = method.merged() if isinstance(method, LoRA | PeftMethod) else {}
    tensors |= {**modules, **{_stock_name(n, reader): t for n, t in merged.items()}}
    learned = {id(p) for name, p in method.learned().items() if name.startswith("backbone.")}
    tuned = [n for n, p in backbone.model.named_parameters() if id(p) in learned]
    tuned += merged
    written = {_stock_name(n, reader) for n in tuned if not n.startswith("pooler.")}
    if lacking := (written | modules.keys()) - held.keys():
        raise UserError(f"export: {reader.auto} has no tensor {min(lacking)}. Nothing was written.")
    with torch.no_grad():
        for name in held.keys() & tensors.keys():
            held[name].copy_(tensors[name])
    stock.save_pretrained(folder)
    write_head(folder, form)


def load_whole(folder: Path, form: PeftForm, _method: Method, device: str) -> Any:
    """Return the stock model of a folder, in fp32."""
    model: Any = loading.load(folder)[0] if form.reader.head else plain_model(form.reader, folder)
    return model.to(device).eval()


def named_labels(reader: Reader) -> dict[str, Any]:
    """Return the arguments of a stock class that name its labels."""
    if not reader.modules:
        return {}
    names = dict(enumerate(reader.labels))
    return {"id2label": names, "label2id": {name: i for i, name in names.items()}}


_MADE: dict[type[Method], Callable[[Any, Reader], PeftForm]] = {
    **dict.fromkeys((PromptTuning, ResidualPrompt, MultitaskPrompt, CPT), _vectors),
    PTuning: _vectors,
    PTuningV2: _prefix_tuning,
    Cartridge: _prefix_tuning,
    LoRA: _lora,
    PeftMethod: _peft,
}


def rows_reason(batch: Batch, form: PeftForm) -> str | None:
    """Return why PEFT cannot place the vectors or segments of rows, if it cannot."""
    if form.cut and batch.softs is not None:
        places = torch.arange(form.cut, device=batch.softs.device)
        if not bool((batch.softs == places).all()):
            return (
                "PEFT puts vectors before the text only, and this pattern has some inside it "
                "(after [CLS], or among words)."
            )
    drops = form.learns_prompt and (form.reader.words or form.reader.head)
    if drops and batch.types is not None and bool(batch.types.any()):
        return "PEFT drops the second segment of a pair or of a pattern with ||."
    return None


def afterwards(method: Method, rows: Sequence[Features], *, keeps_weights: bool) -> str:
    """Return one line: what a run allows when it is finished, and what to change if not.

    `rows` are some of its encoded rows, or none; the values of the method do not matter.
    """
    if method.tunes_backbone and not keeps_weights:
        return "afterwards: no ptrun predict, no export: type keep=weights to keep the tuned model"
    is_whole = type(method) is FineTuning
    try:
        form = whole_of(method) if is_whole else form_of(method)
        if rows and (reason := rows_reason(collate(rows, None, torch.device("cpu")), form)):
            raise cannot(reason)
    except UserError as error:
        reason = str(error).removeprefix("export: ").removeprefix(_CANNOT).rstrip(".")
        return f"afterwards: ptrun predict; no export: {reason}"
    kind = "transformers" if is_whole else "peft"
    note = ", read by its own load.py" if form.reader.head else ""
    return f"afterwards: ptrun predict; ptrun export --to {kind} ({title(form)}{note})"


def title(form: PeftForm) -> str:
    """Return the kind of adapter and the class of transformers under it."""
    auto = form.reader.auto
    return auto if form.peft_type == WHOLE else f"{form.peft_type} on {auto}"


# Writes PEFT's files, and loads them as anybody would: with transformers and PEFT alone.

TENSORS, HEAD = "adapter_model.safetensors", "head.safetensors"


def write(folder: Path, form: PeftForm, method: Method, base: str) -> None:
    """Write `adapter_config.json` and `adapter_model.safetensors` of a form, for inference.

    `base` names the backbone: a hub id or a folder.
    """
    from peft import PeftType
    from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING

    config_class = PEFT_TYPE_TO_CONFIG_MAPPING[PeftType(form.peft_type)]
    options, backbone = dict(form.options), method.backbone
    if "save_projection" in config_class.__dataclass_fields__:
        options["save_projection"] = False  # drawn again from its seed
    revision = (backbone.commit or backbone.revision) if base == backbone.hub else None
    with warnings.catch_warnings(action="ignore"):  # of old names, and of projections
        config = config_class(
            **options,
            task_type=form.reader.task_type,
            base_model_name_or_path=base,
            revision=revision,
            inference_mode=True,
            modules_to_save=list(form.reader.modules) or None,
        )
    config.save_pretrained(folder)
    _save(form.tensors, folder / TENSORS)
    write_head(folder, form, base, revision)


def write_head(
    folder: Path, form: PeftForm, base: str | None = None, revision: str | None = None
) -> None:
    """Write `load.py` and what it reads, for a head that no stock class has."""
    if head := form.reader.head:
        facts = {"base": base, "revision": revision, "vectors": form.length, **head}
        (folder / "head.json").write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n")
        _save(form.reader.tensors, folder / HEAD)
        shutil.copyfile(loading.__file__, folder / "load.py")


def _save(tensors: Mapping[str, Tensor], file: Path) -> None:
    from safetensors.torch import save_file

    on_cpu = {name: tensor.float().cpu().contiguous() for name, tensor in tensors.items()}
    save_file(on_cpu, file, {"format": "pt"})
    file.chmod(0o644)


def load(folder: Path, form: PeftForm, method: Method, device: str) -> Any:
    """Return the stock model of an adapter folder, in fp32, with exactly its tensors."""
    from peft import PeftModel, get_peft_model_state_dict

    backbone = method.backbone
    try:
        with warnings.catch_warnings(action="ignore"):
            if form.reader.head:
                model: Any = loading.load(folder, backbone.folder)[0]
            else:
                model = PeftModel.from_pretrained(plain_model(form.reader, backbone.folder), folder)
    except RuntimeError as error:  # of sizes: it has its own rules for some model types
        kind = backbone.config["model_type"]
        raise cannot(f"PEFT gives {kind} tensors of another form. Nothing was written.") from error
    adapted = model.backbone if form.reader.head else model
    held = get_peft_model_state_dict(adapted, save_embedding_layers=False)
    for name, tensor in form.tensors.items():
        if name not in held or not torch.equal(held[name].cpu(), tensor.float().cpu()):
            raise UserError(f"export: PEFT did not load {name}. Nothing was written.")
    return model.to(device).eval()


def plain_model(reader: Reader, folder: Path | None) -> Any:
    """Return the stock model of a folder, in fp32."""
    import transformers

    return getattr(transformers, reader.auto).from_pretrained(
        folder, dtype=torch.float32, use_safetensors=True, **named_labels(reader)
    )
