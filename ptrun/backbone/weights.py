"""Reads the tensors of a backbone from its files, and those that a run has tuned."""

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
from ptrun.backbone.stored import stored
from ptrun.errors import UserError

_LOG = logging.getLogger(__name__)


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
