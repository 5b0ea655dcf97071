"""Reads the tensors of a backbone from its files, and those that a run has tuned."""

import json
import logging
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn

from ptrun.backbone import files
from ptrun.errors import UserError

_LOG = logging.getLogger(__name__)
_INDEX = "model.safetensors.index.json"


@dataclass(frozen=True)
class Stored:
    """A tensor of a file; an index reads it, or a part. A file stays open in `kept` alone.

    >>> from ptrun.backbone.files import SHIPPED
    >>> from ptrun.backbone.weights import stored
    >>> tensors = stored(SHIPPED / "pocket_bert")
    >>> tensors["bert.embeddings.word_embeddings.weight"][:2].shape
    torch.Size([2, 128])
    """

    file: Path
    name: str
    shape: torch.Size
    dtype: torch.dtype
    kept: dict[Path, Any] | None = None

    def __getitem__(self, index: Any) -> Tensor:
        if self.kept is None:
            with safe_open(self.file, "pt") as opened:
                return opened.get_slice(self.name)[index]  # type: ignore[no-any-return]
        if self.file not in self.kept:
            self.kept[self.file] = safe_open(self.file, "pt")
        return self.kept[self.file].get_slice(self.name)[index]  # type: ignore[no-any-return]

    def get_shape(self) -> list[int]:
        """Return the shape, as a slice of safetensors does."""
        return list(self.shape)


_DTYPES = {
    **{"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16},
    **{"I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8},
    **{"U8": torch.uint8, "BOOL": torch.bool, "F8_E4M3": torch.float8_e4m3fn},
    **{"F8_E5M2": torch.float8_e5m2, "F8_E8M0": torch.float8_e8m0fnu},
}


def stored(folder: Path, model: Any = None, *, keep: bool = False) -> dict[str, Any]:
    """Return the tensors of a folder, each a `Stored` or a `Dequantized`.

    For a `model` that is the text part of a checkpoint, its tensors alone, under its names. A
    folder with a missing file of its index is refused. `keep` keeps files open between reads.
    """
    tensors, kept = dict[str, Stored](), dict[Path, Any]() if keep else None
    alone = [folder / "model.safetensors"]  # as in transformers, whatever lies beside it
    for file in alone if alone[0].is_file() else files.weight_files(folder):
        for name, (shape, dtype) in files.tensor_headers(file).items():
            if dtype not in _DTYPES:
                raise UserError(f"{file}: {name} is {dtype}; ptrun reads {', '.join(_DTYPES)}.")
            tensors[name] = Stored(file, name, torch.Size(shape), _DTYPES[dtype], kept)
    if (folder / _INDEX).is_file() and not alone[0].is_file():
        listed = json.loads((folder / _INDEX).read_text(encoding="utf-8"))["weight_map"]
        if lost := next((name for name in listed if name not in tensors), None):
            raise UserError(
                f"backbone.path={folder}: {lost} should be in {listed[lost]}, which is missing or "
                f"damaged: {_INDEX} lists {len(listed)} tensors, and the files hold "
                f"{len(listed.keys() & tensors.keys())} of them. Copy the whole model again."
            )
    numbers = dict[str, Any](tensors)
    has_config = (folder / "config.json").is_file()  # the folder of a run, with its head, has none
    has_codes = any(t.dtype.itemsize == 1 and t.dtype != torch.bool for t in tensors.values())
    if has_config and (has_codes or files.quantized_by(files.read_config(folder))):
        from ptrun.backbone.dequantization import dequantized

        numbers = dequantized(tensors, folder)
    if model is not None and getattr(model.config, "text_of", None):
        from ptrun.backbone.text_part import text_tensors

        return text_tensors(folder, numbers, model)
    return numbers


def dequantization(folder: Path) -> str:
    """Return how a folder was quantized, and the counts of its tensors; empty for plain weights."""
    if (method := files.quantized_by(files.read_config(folder))) is None:
        return ""
    from ptrun.backbone.dequantization import UNUSED, Dequantized

    names = [name for file in files.weight_files(folder) for name in files.tensor_headers(file)]
    unused = sum(UNUSED.search(name) is not None for name in names)
    more = f"; {unused} scales of activations are not used" if unused else ""
    count = sum(isinstance(tensor, Dequantized) for tensor in stored(folder).values())
    return f"dequantized from {method}: {count} tensors{more}"


_BUFFERS = ("position_ids", ".attn.bias", ".attn.masked_bias")  # of older versions of the library


def read(
    model_class: Any, config: Any, folder: Path, dtype: torch.dtype, device: str
) -> tuple[Any, set[str]]:
    """Return a model with its weights in `dtype`, and the names that the files lack.

    The weights are loaded onto `device` if `files.device_map` allows it.
    """
    from transformers import conversion_mapping as renaming
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    named, whole = None, getattr(config, "text_of", None)
    if whole:
        stated = renaming.get_checkpoint_conversion_mapping
        merges = [m for m in stated(whole) or () if isinstance(m, renaming.WeightConverter)]
        if merges and stated(config.model_type) is None:  # of experts
            renaming.register_checkpoint_conversion_mapping(config.model_type, merges)
        with torch.device("meta"):
            named = model_class(config)
    model, report = model_class.from_pretrained(
        None,
        config=config,
        state_dict=stored(folder, named, keep=True),
        dtype=dtype,
        device_map=files.device_map(device),
        ignore_mismatched_sizes=True,  # the library tells no name
        output_loading_info=True,
    )
    for name, shape, expected in sorted(report["mismatched_keys"]):
        raise UserError(
            f"{folder}: {name} is {list(shape)}, and config.json asks for {list(expected)}.\n"
            "Copy the whole model again."
        )
    # tensors that the model does not have: heads, or a wrong architecture
    names = sorted(n for n in report["unexpected_keys"] if not n.endswith(_BUFFERS))
    if rest := [name for name in names if "pooler." not in name]:
        shown = ", ".join(rest[:3])
        _LOG.info("%s: %d tensors of the files are not read, e.g. %s", folder, len(rest), shown)
    return model, report["missing_keys"]


_OLD_NAMES = [(".LayerNorm.weight", ".LayerNorm.gamma"), (".LayerNorm.bias", ".LayerNorm.beta")]
_OLD_NAMES += [("lm_head.weight", "embed_out.weight")]
"""Names in BERT's first checkpoints, and in those of GPT-NeoX."""


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
    tensors, base = stored(folder, model), model.base_model_prefix
    for pair in model.all_tied_weights_keys.items():
        names = [n for name in pair if (n := _name([name], base, tensors)) is not None]
        if len(names) == 2 and model.get_parameter(pair[0]) is model.get_output_embeddings().weight:
            return not torch.equal(*(tensors[name][...] for name in names))
    return False


def _name(names: Sequence[str], base: str, tensors: Container[str]) -> str | None:
    """Return the name that the files have for a parameter: with or without the base prefix."""
    for name in names:
        for spelling in (name, name.removeprefix(f"{base}."), f"{base}.{name}"):
            ends = [e for e in _OLD_NAMES if spelling.endswith(e[0])]
            old = [spelling.removesuffix(new) + ending for new, ending in ends]
            for spelled in (spelling, *old):
                if spelled in tensors:
                    return spelled
    return None


def stored_name(folder: Path, model: Any, parameter: nn.Parameter) -> str | None:
    """Return the name that the files of a folder have for a parameter of a model, if any."""
    every = model.named_parameters(remove_duplicate=False)
    names = [name for name, other in every if other is parameter]
    return _name(names, model.base_model_prefix, stored(folder, model))


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
    part: Callable[[str, Any], Tensor] = lambda _, tensor: tensor[:],
) -> set[str]:
    """Read every parameter of a skeleton onto a device; return the names that the files lack.

    `part` takes the name of a parameter and a safetensors slice, and returns what is to be read.
    """
    missing = set()
    tensors, base = stored(folder, model), getattr(model, "base_model_prefix", "")
    names: dict[int, list[str]] = {}  # of each parameter; tied ones have several
    for place, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(place)
    for places in names.values():
        name = _name(places, base, tensors)
        if name is None:
            missing.add(places[0])
            tensor = torch.zeros_like(model.get_parameter(places[0]), dtype=dtype, device=device)
        else:
            tensor = part(places[0], tensors[name]).to(device, dtype, copy=True)
        parameter = nn.Parameter(tensor, requires_grad=False)
        for place in places:
            module, _, last = place.rpartition(".")
            owner: Any = model.get_submodule(module)
            if last == "weight" and hasattr(owner, "hold"):  # a quantized map
                owner.hold(tensor)
                break
            setattr(owner, last, parameter)
    return missing


_ENTAILED = ("entailment", "entail", "entailed")
_STORED = {
    "roberta": {"dense": "classifier.dense", "linear": "classifier.out_proj"},
    "bert": {"linear": "classifier"},
    "albert": {"linear": "classifier"},
}
"""Tensors of the head of `...ForSequenceClassification`, where it has our form."""


@dataclass(frozen=True)
class Classifier:
    """A head `Linear(H, C)`, optionally after its own dense layer, and its labels.

    Args:
        labels: the names of its C rows.
        stored: tensor names in the files, without `.weight`, of `linear` and optionally `dense`.
        pooler: the pooler before it, as in `ptrun.readout.head`.
        origin: where it comes from, for messages.

    >>> from ptrun.backbone.weights import Classifier
    >>> head = Classifier(["contradiction", "entailment"], {"linear": "classifier"}, "none", "mnli")
    >>> head.entailed
    1
    """

    labels: Sequence[str]
    stored: Mapping[str, str]
    pooler: str
    origin: str

    @property
    def entailed(self) -> int | None:
        """The row of entailment, or None without one."""
        rows = (i for i, label in enumerate(self.labels) if label.lower() in _ENTAILED)
        return next(rows, None)

    def tensors(self, folder: Path) -> dict[str, Tensor]:
        """Return the tensors of the head by `linear.weight` and so on."""
        names = {
            f"{name}.{kind}": f"{part}.{kind}"
            for part, name in self.stored.items()
            for kind in ("weight", "bias")
        }
        return {names[name]: t[...] for name, t in stored(folder).items() if name in names}


def classifier_of(backbone: Any) -> Classifier | None:
    """Return the classification head that was last tuned with a backbone.

    None: its configuration describes none of our form.
    """
    if backbone.tuned:
        return backbone.tuned.classifier  # type: ignore[no-any-return]
    config = backbone.config
    stored = _STORED.get(config.get("model_type", ""))
    tuned = any(a.endswith("ForSequenceClassification") for a in config.get("architectures") or ())
    names = config.get("id2label")
    if stored is None or not tuned or not names:
        return None
    labels = [names[key] for key in sorted(names, key=int)]
    pooler = "trainable" if "dense" in stored else "auto"
    return Classifier(labels, stored, pooler, "the checkpoint's")


PREFIX = "backbone."


@dataclass(frozen=True)
class Tuned:
    """The tuned backbone of a run.

    Args:
        file: the tensors of the run.
        digest: identifier of the tensors, 16 hex digits.
        classifier: the head that was tuned with it, if its rows are labels.
        pooler_seed: the seed of the untrained pooler that was used with it.

    >>> from pathlib import Path
    >>> from ptrun.backbone.weights import Tuned
    >>> Tuned(Path("prompt.safetensors"), digest="0123456789abcdef").classifier is None
    True
    """

    file: Path
    digest: str
    classifier: Classifier | None = None
    pooler_seed: int | None = None

    def put(self, backbone: Any) -> None:
        """Copy the tuned tensors into a loaded backbone; refuse one that lacks any of them."""
        with safe_open(self.file, "pt") as opened, torch.no_grad():
            names = [n.removeprefix(PREFIX) for n in opened.keys() if n.startswith(PREFIX)]  # noqa: SIM118
            places = backbone.body()
            if not set(names) <= places.keys():  # it was tuned with its output head
                places = backbone.body(head=True)
            if missing := sorted(set(names) - places.keys()):
                raise UserError(f"{backbone.name} lacks {missing[0]}, which was tuned.")
            for name in names:
                places[name].copy_(backbone.own(places[name], opened.get_slice(PREFIX + name)))
