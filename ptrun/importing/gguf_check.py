"""Refuses GGUF files that transformers would read wrongly without a word.

transformers leaves out tensors and fields that it does not know, and splits text as GPT-2 does
where it does not know the rule. So each tensor and each field of the model must be known here.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ptrun.converting.convert import Dtype
from ptrun.errors import UserError

if TYPE_CHECKING:
    from gguf import GGUFReader

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
    try:
        from gguf import GGUFReader
    except ImportError as error:
        raise UserError("GGUF files need gguf; type pip install 'ptrun[gguf]'.") from error
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
