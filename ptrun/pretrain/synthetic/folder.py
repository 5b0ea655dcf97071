"""The folder of a random model: weights, tokenizer, and finally the configuration.

Without the configuration nothing loads, so a killed process leaves no folder that looks complete.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ptrun.backbone import files
from ptrun.backbone.family import Family, family_of
from ptrun.backbone.library import library_config
from ptrun.converting.convert import write_config
from ptrun.converting.staging import check_new, progress, staging
from ptrun.converting.writing import Entry, write_model
from ptrun.errors import UserError
from ptrun.pretrain.building import check_keys
from ptrun.pretrain.synthetic.recipe import Synthetic
from ptrun.pretrain.synthetic.weights import draw, empty_model
from ptrun.tokenizer import tokenizers

_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
_POCKET = {"masked": "pocket_bert", "causal": "pocket_gpt2", "seq2seq": "pocket_t5"}
_POCKET |= {"infilling": "pocket_glm"}
_IDS = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")


def write(out: Path, config: dict[str, Any], recipe: Synthetic) -> tuple[int, int]:
    """Write a model folder, one tensor in memory at a time; return its parameters and bytes.

    Raises:
        UserError: `out` is not empty, the configuration is invalid, the tokenizer does not fit, or
            the disk is too full. Nothing is written to `out` then.
    """
    check_new(out)
    family, dtype = family_of(f"{recipe.out} (model.model_type=)", config), _TYPES[recipe.dtype]
    source = _tokenizer(family.name, recipe)
    if recipe.tokenizer is None:
        pocket = files.read_config(source)
        config = {**config, **{key: pocket[key] for key in _IDS if key in pocket}}
    library = _library_config(family, config, recipe.model)
    _check_fits(source, config["model_type"], library.vocab_size)
    model = empty_model(family, library)
    every = [Entry(name, tuple(p.shape), dtype) for name, p in model.named_parameters()]
    total = sum(entry.nbytes for entry in every)
    with staging(out, total) as folder, progress(total, "writing") as advance:

        def read(entry: Entry) -> Tensor:
            advance(entry.nbytes)
            return draw(entry, library, recipe.seed)

        write_model(folder, every, read)
        tokenizers.copy(source, folder)
        _write_config(folder, config, type(model).__name__, dtype, recipe.seed)
    return sum(p.numel() for p in model.parameters()), total


def _tokenizer(family: str, recipe: Synthetic) -> Path:
    """Return the folder of the model's tokenizer."""
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
        library = library_config(family, config)
    except (TypeError, ValueError, StrictDataclassError) as error:
        raise UserError(f"model: {' '.join(str(error).split())[:160]}") from error
    check_keys(library, overrides)
    return library


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
