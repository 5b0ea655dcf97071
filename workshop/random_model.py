"""Write random weights in the full size of any backbone, to test a machine.

Memory, speed, engines and formats need a model of full size, not a trained one. The configuration
is written last. Without it nothing loads, so a killed process leaves no folder that looks complete.

Standard deviations are those of the architecture's initialization. A value is a scaled sum of four
random bytes: it is nearly normal, and integers with one rounding give the same bits on every
machine. torch's normal numbers depend on the instructions of the processor.
"""

import hashlib
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import sqrt
from pathlib import Path
from typing import Any, Literal

import numpy
import torch
from omegaconf import OmegaConf
from torch import Tensor, nn

from ptrun.backbone import files, tokenizers
from ptrun.backbone.family import Family
from ptrun.backbone.registry import family_of
from ptrun.config import build
from ptrun.config.paths import options
from ptrun.errors import UserError, near, unknown
from ptrun.hub.convert import write_config, write_model
from ptrun.hub.staging import check_new
from workshop import command

EXAMPLES = """\
  python -m workshop.random_model backbone=gpt2 model.n_layer=2 out=DIR     two layers of GPT-2
  python -m workshop.random_model backbone=t5_xxl_lm_adapt out=DIR          11B random weights
"""
_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
_POCKET = {"masked": "pocket_bert", "causal": "pocket_gpt2", "seq2seq": "pocket_t5"}
_POCKET |= {"infilling": "pocket_glm"}
_IDS = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")
_BYTES = 4  # per weight
_MEAN, _VARIANCE = _BYTES * 255 / 2, _BYTES * (256**2 - 1) / 12
_CHUNK = 2**22  # weights drawn at once; even
_T5 = ("t5", "mt5")
_WHOLE = {"bert": "BertForPreTraining", "albert": "AlbertForPreTraining"}
"""Classes with all tensors of a published checkpoint, including the pooler."""


@dataclass(frozen=True, kw_only=True)
class RandomModel:
    """One model folder with random weights.

    Args:
        out: a new or empty output folder.
        dtype: dtype of the weights on disk: `bf16`, `fp16` or `fp32`.
        seed: random seed; the same seed gives the same bits on every machine.
        model: configuration keys that replace those of the backbone, as in model.num_layers=2;
            without backbone=NAME the whole configuration with its `model_type`.
        tokenizer: a folder whose tokenizer is copied; null is that of the pocket world, which
            has the words of the pocket tasks.
    """

    out: str
    dtype: Literal["bf16", "fp16", "fp32"] = "bf16"
    seed: int = 1
    model: dict[str, Any] = field(default_factory=dict)
    tokenizer: str | None = None


def main(arguments: Sequence[str]) -> None:
    """Write one model folder and print its size.

    Raises:
        UserError: a name, key or value is wrong, `out` is not empty, or the disk is too full.
    """
    config, recipe = read(arguments)
    began = time.perf_counter()
    parameters, nbytes = write(Path(recipe.out).expanduser(), config, recipe)
    size = {"parameters": parameters, "gigabytes": round(nbytes / 1e9, 3)}
    seconds = round(time.perf_counter() - began, 1)
    print(json.dumps({"folder": recipe.out, **size, "seconds": seconds}))


def read(arguments: Sequence[str]) -> tuple[dict[str, Any], RandomModel]:
    """Return the model's configuration and the recipe of a command line.

    Raises:
        UserError: a name, key or value is wrong.
    """
    keys = command.keys_of(RandomModel)
    name, overrides = command.overrides("random_model", __doc__, EXAMPLES, keys, arguments)
    settings = command.merged("random_model", overrides)
    recipe = command.settings("random_model", RandomModel, settings)
    return {**(_published(name) if name else {}), **recipe.model}, recipe


def _published(name: str) -> dict[str, Any]:
    """Return the configuration from a backbone's YAML file, or from its folder in the package."""
    if name not in (known := options("backbone")):
        raise UserError(unknown(f"backbone={name}", name, known))
    node = build.plain(OmegaConf.load(known[name]))  # type: ignore[arg-type]
    shipped = files.locate(node.get("shipped"), None)
    return files.read_config(shipped) if shipped else dict(node["config"])


def write(out: Path, config: dict[str, Any], recipe: RandomModel) -> tuple[int, int]:
    """Write a model folder, one tensor in memory at a time; return its parameters and bytes.

    Raises:
        UserError: `out` is not empty, the configuration is invalid, the tokenizer does not fit, or
            the disk is too full. Nothing is written to `out` then.
    """
    check_new(out)
    name, dtype = f"{recipe.out} (model.model_type=)", _TYPES[recipe.dtype]
    from ptrun.papers.backbone import families

    family = family_of(name, config, families())
    source = _tokenizer(family.name, recipe)
    if recipe.tokenizer is None:
        pocket = files.read_config(source)
        config = {**config, **{key: pocket[key] for key in _IDS if key in pocket}}
    library = _library_config(family, config, recipe.model)
    _check_fits(source, config["model_type"], library.vocab_size)
    model = empty_model(family, library)
    layout = {name: p.detach().to(dtype) for name, p in model.named_parameters()}

    def finish(folder: Path) -> None:
        tokenizers.copy(source, folder)
        _write_config(folder, config, type(model).__name__, dtype, recipe.seed)

    def read(name: str) -> Tensor:
        return draw(name, layout[name], library, recipe.seed)

    return write_model(out, layout, read, finish, "writing")


def _tokenizer(family: str, recipe: RandomModel) -> Path:
    """Return the folder of the model's tokenizer.

    Raises:
        UserError: there is none.
    """
    if recipe.tokenizer is None:
        return files.SHIPPED / _POCKET[family]
    folder = Path(recipe.tokenizer).expanduser()
    if not folder.is_dir():
        raise UserError(f"tokenizer={recipe.tokenizer}: no such folder; give a model folder.")
    return folder


def _library_config(family: Family, config: dict[str, Any], overrides: dict[str, Any]) -> Any:
    """Return the transformers configuration.

    Raises:
        UserError: a key or value is invalid for this kind of model.
    """
    from huggingface_hub.errors import StrictDataclassError

    try:
        library = family.library_config(config)
    except (TypeError, ValueError, StrictDataclassError) as error:
        raise UserError(f"model: {' '.join(str(error).split())[:160]}") from error
    check_keys(library, overrides)
    return library


def check_keys(config: Any, overrides: dict[str, Any]) -> None:
    """Raise a UserError for unknown keys, which the library would store without using them."""
    known = {*type(config)().to_dict(), *config.attribute_map, "decoder_start_token_id"}
    for key in overrides.keys() - known - {"model_type"}:
        raise UserError(f"model.{key}: unknown{near(key, known)}")


def _check_fits(source: Path, kind: str, rows: int) -> None:
    words = len(tokenizers.load(source, kind))
    if words > rows:
        raise UserError(
            f"model.vocab_size is {rows}, but the tokenizer of {source.name} has {words} entries; "
            f"use model.vocab_size={words} or more, or tokenizer=FOLDER for a smaller tokenizer."
        )


def _write_config(
    folder: Path, config: dict[str, Any], name: str, dtype: torch.dtype, seed: int
) -> None:
    """Write config.json, which marks the weights as random."""
    kind = {"architectures": [name], "dtype": str(dtype).removeprefix("torch.")}
    write_config(folder, {**config, **kind, "random_weights_seed": seed})


def empty_model(family: Family, config: Any) -> Any:
    """Return a model without weights; T5 v1.1 gets an untied output matrix."""
    import transformers

    with torch.device("meta"):
        whole = _WHOLE.get(config.model_type)
        model = (getattr(transformers, whole) if whole else family.model_class)(config)
        if config.model_type in _T5 and not getattr(config, "scale_decoder_outputs", False):
            model.lm_head.weight = nn.Parameter(torch.empty_like(model.lm_head.weight))
    return model


def draw(name: str, layout: Tensor, config: Any, seed: int) -> Tensor:
    """Return the initial values of a tensor of this form; vectors are biases or norms."""
    tensor = torch.empty_like(layout, device="cpu")
    if layout.dim() == 1:
        return tensor.fill_(float(not name.endswith("bias")))
    scale = numpy.float32(deviation(name, config) / sqrt(_VARIANCE))
    bits = _stream(name, seed)
    flat = tensor.view(-1)
    for start in range(0, len(flat), _CHUNK):
        part = flat[start : start + _CHUNK]
        part.copy_(torch.from_numpy(_sums(bits, part.numel()) * scale))
    return tensor


def deviation(name: str, config: Any) -> float:
    """Return the initial standard deviation of a matrix."""
    if config.model_type in _T5:
        return _t5_deviation(name, config)
    std: float = getattr(config, "initializer_range", None) or config.init_std
    if config.model_type in ("gpt2", "blocklm") and name.endswith("c_proj.weight"):
        return std / sqrt(2 * config.n_layer)  # its output is added to the residual stream
    return std


def _t5_deviation(name: str, config: Any) -> float:
    """Return T5's: activations keep their size without a division in the attention.

    It also applies to an untied output matrix, for which transformers gives logits in the hundreds.
    """
    inner = config.num_heads * config.d_kv
    rows = {"q": config.d_model * config.d_kv, "o": inner, "wo": config.d_ff, "shared": 1}
    part = name.removesuffix(".weight").rpartition(".")[2]
    return float(config.initializer_factor / sqrt(rows.get(part, config.d_model)))


def _stream(name: str, seed: int) -> numpy.random.SFC64:
    """Return the random bits of one tensor, independent of earlier draws."""
    digest = hashlib.sha256(name.encode()).digest()
    words = [int.from_bytes(digest[i : i + 4], "little") for i in range(0, 16, 4)]
    return numpy.random.SFC64(numpy.random.SeedSequence([seed, *words]))


def _sums(bits: numpy.random.SFC64, count: int) -> Any:
    """Return `count` sums of random bytes around their mean, exact in fp32."""
    even = count + count % 2
    raw = bits.random_raw(even * _BYTES // 8).astype("<u8", copy=False).view(numpy.uint8)
    first, *others = raw.reshape(_BYTES, even)
    total = first.astype(numpy.int16)
    for plane in others:
        total += plane
    return total[:count].astype(numpy.float32) - numpy.float32(_MEAN)


if __name__ == "__main__":
    sys.exit(command.run(main, sys.argv[1:]))
