"""Import of a GGUF file, llama.cpp's format: `ptrun import gguf FILE --out DIR`.

transformers reads the file, undoes its quantization and rebuilds the tokenizer that it holds.
`gguf_check` refuses what it would read wrongly.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch

from ptrun.errors import UserError
from ptrun.hub.convert import DTYPES, Dtype, Imported
from ptrun.hub.staging import check_new, staging

if TYPE_CHECKING:
    from gguf import GGUFReader
    from transformers import PreTrainedModel


_NAME = "model.gguf"


@dataclass(frozen=True)
class GGUFSizes:
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
    return Imported(out, GGUFSizes(sizes.num_hidden_layers, sizes.vocab_size), count, nbytes)


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


# Refuses GGUF files that transformers would read wrongly without a word.
#
# transformers leaves out tensors and fields that it does not know, and splits text as GPT-2 does
# where it does not know the rule. So each tensor and each field of the model must be known here.

KINDS = ("llama", "qwen2", "qwen3")  # Mistral's files say llama
_MAGIC = b"GGUF"
_SAVED: dict[str, Dtype] = {"F32": "fp32", "F16": "fp16"}
_LIST = "a list"  # stands for a field with several values
_SCALED = "its rotary positions are scaled, which transformers does not read from GGUF files"
_SIZES = (
    *("context_length", "embedding_length", "block_count", "feed_forward_length", "vocab_size"),
    *("attention.head_count", "attention.head_count_kv", "attention.layer_norm_rms_epsilon"),
    *("attention.key_length", "attention.value_length", "rope.dimension_count", "rope.freq_base"),
    *("expert_count", "expert_used_count"),
)
_WHOLE = ("token_embd.weight", "output_norm.weight", "output.weight")
_LAYER = (
    *("attn_norm.weight", "attn_q.weight", "attn_k.weight", "attn_v.weight", "attn_output.weight"),
    *("ffn_norm.weight", "ffn_gate.weight", "ffn_up.weight", "ffn_down.weight"),
)
_OWN = {
    "qwen2": ("attn_q.bias", "attn_k.bias", "attn_v.bias"),
    "qwen3": ("attn_q_norm.weight", "attn_k_norm.weight"),
}
DIGITS = "smollm"  # GPT-2's rule after each digit was split off; transformers does not know it


def check(source: Path) -> tuple[dict[str, Any], Dtype]:
    """Return the fields of a file by name, and the dtype of its matrices; bf16 if quantized.

    A list is the text `_LIST`.

    Raises:
        UserError: the file is damaged, or transformers cannot read all that it says.
    """
    reader = _reader(source)
    try:
        fields = _fields(reader)
    except (ValueError, LookupError, OverflowError, RecursionError) as error:
        raise UserError(f"{source}: damaged or cut short; download it again.") from error
    if reason := _reason(fields, {tensor.name for tensor in reader.tensors}):
        raise UserError(f"{source}: cannot be imported: {reason}.")
    kinds = {tensor.tensor_type.name for tensor in reader.tensors if len(tensor.shape) > 1}
    return fields, _SAVED.get(kinds.pop(), "bf16") if len(kinds) == 1 else "bf16"


def _reason(fields: dict[str, Any], tensors: set[str]) -> str | None:
    """Return why a file is refused, or None."""
    kind = fields.get("general.architecture")
    if fields.get("general.type", "model") != "model":
        return f"it holds a part of a model ({fields['general.type']})"
    if kind not in KINDS:
        return f"its architecture is {kind}; ptrun reads {', '.join(KINDS)}"
    if fields.get("split.count", 1) not in (0, 1):
        return "it is one of several files; join them with llama-gguf-split --merge"
    if fields.get(f"{kind}.expert_count", 0) != 0:
        return "it is a mixture of experts"
    scaled = any(name.startswith(f"{kind}.rope.scal") for name in fields)
    if scaled or any(name.startswith("rope_f") for name in tensors):
        return _SCALED
    known = {f"{kind}.{name}" for name in _SIZES}
    if unknown := sorted(n for n in fields if n.startswith(f"{kind}.") and n not in known):
        return f"it has the field {unknown[0]} ({fields[unknown[0]]}), which would be ignored"
    return _of_tensors(fields, kind, tensors) or _of_tokenizer(fields)


def _of_tensors(fields: dict[str, Any], kind: str, tensors: set[str]) -> str | None:
    layers, own = fields.get(f"{kind}.block_count"), (*_LAYER, *_OWN.get(kind, ()))
    if not isinstance(layers, int) or not 0 < layers <= len(tensors):
        return f"{kind}.block_count is {layers}, and it has {len(tensors)} tensors"
    places = {*_WHOLE, *(f"blk.{layer}.{name}" for layer in range(layers) for name in own)}
    if missing := sorted(places - tensors - {"output.weight"}):
        return f"tensors are missing: {', '.join(missing[:2])}"
    if extra := sorted(tensors - places):
        return f"it has the tensor {extra[0]}, which would be ignored"
    return None


def _of_tokenizer(fields: dict[str, Any]) -> str | None:
    from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

    kind, rule = fields.get("tokenizer.ggml.model"), fields.get("tokenizer.ggml.pre")
    if "tokenizer.ggml.tokens" not in fields or kind is None:
        return "it has no tokenizer"
    if kind not in ("gpt2", "llama"):
        return f"its tokenizer is of the kind {kind}; ptrun reads gpt2 and llama"
    if kind == "gpt2" and rule not in (*GGUF_PRE_TOKENIZER_SPLITS, "gpt-2", DIGITS):
        return (
            f"tokenizer.ggml.pre is {rule}; transformers does not know how this tokenizer splits "
            "text, or the file was made before llama.cpp said so"
        )
    return None


def _reader(source: Path) -> "GGUFReader":
    if source.is_dir():
        raise UserError(f"{source} is a folder; name the GGUF file in it.")
    if not source.is_file():
        raise UserError(f"{source}: no such file; expected a model in one GGUF file.")
    with source.open("rb") as opened:
        if opened.read(len(_MAGIC)) != _MAGIC:
            raise UserError(f"{source}: not a GGUF file.")
    lacking = [name for name in ("gguf", "accelerate") if find_spec(name) is None]
    if lacking:  # transformers reads GGUF files with both
        needs = " and ".join(lacking)
        raise UserError(f"GGUF files need {needs}; type pip install 'ptrun[gguf]'.")
    from gguf import GGUFReader

    try:
        return GGUFReader(source)
    except (ValueError, LookupError, OverflowError, OSError, MemoryError, RecursionError) as error:
        raise UserError(f"{source}: damaged or cut short; download it again.") from error


def _fields(reader: "GGUFReader") -> dict[str, Any]:
    """Return the fields by name; text that is no UTF-8 has marks in it."""
    single = {name: field for name, field in reader.fields.items() if len(field.data) == 1}
    return dict.fromkeys(reader.fields, _LIST) | {n: _value(field) for n, field in single.items()}


def _value(field: Any) -> Any:
    try:
        return field.contents()
    except UnicodeDecodeError:
        return bytes(field.parts[field.data[0]]).decode(errors="replace")
