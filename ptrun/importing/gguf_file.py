"""Import of a GGUF file, llama.cpp's format: `ptrun import gguf FILE --out DIR`.

transformers reads the file, undoes its quantization and rebuilds the tokenizer that it holds. What
transformers would read wrongly without a word, such as scaled rotary positions, is refused here.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ptrun.errors import UserError
from ptrun.importing.convert import DTYPES, Dtype, Imported
from ptrun.importing.staging import check_new, staging

if TYPE_CHECKING:
    from gguf import GGUFReader
    from transformers import PreTrainedModel

KINDS = ("llama", "mistral", "qwen2", "qwen3")
_MAGIC = b"GGUF"
_SCALED = "its rotary positions are scaled, which transformers does not read from GGUF files"


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
        dtype: dtype of the tensors; defaults to bf16, which holds 4- and 8-bit weights closely.

    Raises:
        UserError: the file is damaged or not a model shaped like Llama, has no tokenizer, `gguf` is
            not installed, or `out` is not empty. Nothing is written to `out` then.
    """
    check_new(out)
    _check(source)
    model = _model(source, dtype or "bf16")
    tokenizer = _tokenizer(source)
    count = sum(tensor.numel() for tensor in model.parameters())
    nbytes = sum(tensor.nbytes for tensor in model.parameters())
    with staging(out, nbytes) as folder, _quiet():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        for file in folder.glob("*.safetensors"):
            file.chmod(0o644)  # the library's are for their owner alone
    sizes: Any = model.config
    return Imported(out, Sizes(sizes.num_hidden_layers, sizes.vocab_size), count, nbytes)


def _check(source: Path) -> None:
    """Raise a UserError if transformers cannot read the file as it is."""
    fields, tensors = _content(source)
    kind = fields.get("general.architecture")
    reason = None
    if fields.get("general.type", "model") != "model":
        reason = f"it holds a part of a model ({fields['general.type']})"
    elif kind not in KINDS:
        reason = f"its architecture is {kind}; ptrun reads {', '.join(KINDS)}"
    elif fields.get("split.count", 1) > 1:
        reason = "it is one of several files; join them with llama-gguf-split --merge"
    elif fields.get(f"{kind}.expert_count", 0):
        reason = "it is a mixture of experts"
    elif "rope_freqs.weight" in tensors or f"{kind}.rope.scaling.factor" in fields:
        reason = _SCALED
    elif "tokenizer.ggml.tokens" not in fields:
        reason = "it has no tokenizer"
    if reason:
        raise UserError(f"{source}: cannot be imported: {reason}.")


def _content(source: Path) -> tuple[dict[str, Any], set[str]]:
    """Return the fields of a file by name, None for lists, and the names of its tensors."""
    if not source.is_file():
        raise UserError(f"{source}: no such file; expected a model in one GGUF file.")
    with source.open("rb") as opened:
        if opened.read(len(_MAGIC)) != _MAGIC:
            raise UserError(f"{source}: not a GGUF file.")
    reader = _reader(source)
    single = {name: field for name, field in reader.fields.items() if len(field.data) == 1}
    fields = dict.fromkeys(reader.fields) | {name: f.contents() for name, f in single.items()}
    return fields, {tensor.name for tensor in reader.tensors}


def _reader(source: Path) -> "GGUFReader":
    try:
        from gguf import GGUFReader
    except ImportError as error:
        raise UserError("GGUF files need gguf; type pip install 'ptrun[gguf]'.") from error
    try:
        return GGUFReader(source)
    except (ValueError, LookupError, OverflowError, OSError, MemoryError) as error:
        raise UserError(f"{source}: damaged or cut short; download it again.") from error


def _model(source: Path, dtype: Dtype) -> "PreTrainedModel":
    """Return the model without the mark of its quantization, with which it cannot be saved."""
    from transformers import AutoModelForCausalLM

    with _quiet():
        loaded, info = AutoModelForCausalLM.from_pretrained(
            source.parent, gguf_file=source.name, dtype=DTYPES[dtype], output_loading_info=True
        )
    tied = {"lm_head.weight"} if loaded.config.tie_word_embeddings else set()
    if absent := sorted({*info["missing_keys"], *info["mismatched_keys"]} - tied):
        raise UserError(f"{source}: tensors are missing or have another size: {absent[0]}, ...")
    settings = loaded.config.to_dict()
    settings.pop("quantization_config", None)
    model: PreTrainedModel = type(loaded)(type(loaded.config).from_dict(settings)).to(DTYPES[dtype])
    model.load_state_dict(loaded.state_dict())
    return model


def _tokenizer(source: Path) -> Any:
    from transformers import AutoTokenizer

    with _quiet():
        return AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)


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
