"""Import of a GGUF file, llama.cpp's format: `ptrun import gguf FILE --out DIR`.

transformers reads the file, undoes its quantization and rebuilds the tokenizer that it holds.
`gguf_check` refuses what it would read wrongly.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch

from ptrun.converting.convert import DTYPES, Dtype, Imported
from ptrun.converting.staging import check_new, staging
from ptrun.errors import UserError
from ptrun.importing.gguf_check import DIGITS, check

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_NAME = "model.gguf"


@dataclass(frozen=True)
class Sizes:
    """The sizes that the command prints."""

    layers: int
    vocab: int


def import_gguf(source: Path, out: Path, *, dtype: Dtype | None = None) -> Imported:
    """Write the folder of a model in a GGUF file and return a summary of it.

    Args:
        source: the file; its model is shaped like Llama.
        out: a new or empty folder.
        dtype: dtype of the tensors; defaults to that of the file, and to bf16 for quantized ones,
            which holds 4- and 8-bit weights closely.

    Raises:
        UserError: the file is damaged or not a model shaped like Llama, has no tokenizer, `gguf` is
            not installed, or `out` is not empty. Nothing is written to `out` then.
    """
    check_new(out)
    fields, saved = check(source)
    with _read(source) as place:
        model = _model(source, place, fields, DTYPES[dtype or saved])
        tokenizer = _tokenizer(place, fields)
    count = sum(tensor.numel() for tensor in model.parameters())
    nbytes = sum(tensor.nbytes for tensor in model.parameters())
    with staging(out, nbytes) as folder, _quiet():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        for file in folder.glob("*.safetensors"):
            file.chmod(0o644)  # the library's are for their owner alone
    sizes: Any = model.config
    return Imported(out, Sizes(sizes.num_hidden_layers, sizes.vocab_size), count, nbytes)


@contextmanager
def _read(source: Path) -> Iterator[str]:
    """Yield a folder that has the file alone: transformers would use a tokenizer beside it.

    Raises:
        UserError: the library cannot read the file; it fails in many ways.
    """
    with TemporaryDirectory() as place, _quiet():
        (Path(place) / _NAME).symlink_to(source.resolve())
        try:
            yield place
        except UserError:
            raise
        except Exception as error:
            why = str(error).strip().partition("\n")[0][:120] or type(error).__name__
            raise UserError(f"{source}: transformers cannot read it: {why}") from error


def _model(
    source: Path, place: str, fields: dict[str, Any], dtype: torch.dtype
) -> "PreTrainedModel":
    """Return the model without the mark of its quantization, with which it cannot be saved."""
    from transformers import AutoModelForCausalLM

    loaded, info = AutoModelForCausalLM.from_pretrained(
        place, gguf_file=_NAME, dtype=dtype, output_loading_info=True, ignore_mismatched_sizes=True
    )
    tied = {"lm_head.weight"} if loaded.config.tie_word_embeddings else set()
    sizes = {name for name, *_ in info["mismatched_keys"]}
    if wrong := sorted({*info["missing_keys"], *sizes} - tied):
        raise UserError(f"{source}: tensors are missing or have another size: {wrong[0]}, ...")
    _check_heads(source, loaded.config, fields)
    settings = loaded.config.to_dict()
    settings.pop("quantization_config", None)
    with torch.device("meta"):
        model: PreTrainedModel = type(loaded)(type(loaded.config).from_dict(settings))
    model.load_state_dict(loaded.state_dict(), assign=True)
    model.tie_weights()
    return model


def _check_heads(source: Path, config: Any, fields: dict[str, Any]) -> None:
    """Refuse a size of heads, or a part of them that is rotated, that the library does not read."""
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    for name in ("attention.key_length", "attention.value_length", "rope.dimension_count"):
        key = f"{fields['general.architecture']}.{name}"
        if fields.get(key, size) != size:
            raise UserError(
                f"{source}: cannot be imported: {key} is {fields[key]}, and transformers reads "
                f"heads of {size}."
            )


def _tokenizer(place: str, fields: dict[str, Any]) -> Any:
    from tokenizers import pre_tokenizers
    from transformers import AutoTokenizer

    made = AutoTokenizer.from_pretrained(place, gguf_file=_NAME)
    if fields.get("tokenizer.ggml.pre") == DIGITS:
        made.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False),
            ]
        )
    return made


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the library's bars and advice from the terminal."""
    logger = logging.getLogger("transformers")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with redirect_stderr(StringIO()):
            yield
    finally:
        logger.setLevel(level)
