"""How the tensors of each kind of model are divided over a tensor-parallel group.

Megatron's way: a map into heads or into a feed-forward layer is cut by its outputs (`column`), the
map out of it by its inputs (`row`); embeddings, norms and T5's relative bias are whole everywhere.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ptrun.errors import UserError


@dataclass(frozen=True)
class Pattern:
    """Regular expressions of module paths, whole: which maps are cut, and how.

    Args:
        column: cut by outputs, bias too.
        row: cut by inputs; the bias is whole.
        fused: cut by outputs in each of three equal pieces (query, key, value in one).
        output: whether an output head `lm_head` of its own is cut by the vocabulary, if that is a
            multiple.
        shared: whole, but used on a rank's own heads: each rank has a part of the gradient.
    """

    column: str
    row: str
    fused: str | None = None
    output: bool = False
    shared: str | None = None


_BERT = Pattern(
    r".*layer\.\d+\.(attention\.self\.(query|key|value)|intermediate\.dense)",
    r".*layer\.\d+\.(attention\.)?output\.dense",
)
_T5 = Pattern(r".*\.(q|k|v|wi|wi_0|wi_1)", r".*\.(o|wo)", output=True)
_LLAMA = Pattern(
    r".*\.(q|k|v|gate|up)_proj", r".*\.(o|down)_proj", shared=r".*\.self_attn\.[qk]_norm"
)
_GPT2 = Pattern(r".*\.mlp\.c_fc", r".*\.(attn|mlp)\.c_proj", fused=r".*\.attn\.c_attn")
_MEGATRON = Pattern(r".*\.(q_proj|k_proj|v_proj|fc1)", r".*\.(out_proj|fc2)")
PATTERNS: Mapping[str, Pattern] = {
    **dict.fromkeys(("bert", "roberta", "electra"), _BERT),
    **dict.fromkeys(("t5", "mt5"), _T5),
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3"), _LLAMA),
    **dict.fromkeys(("gpt2", "blocklm"), _GPT2),
    "megatron": _MEGATRON,
}
"""By `model_type`; others are not divided."""


@dataclass(frozen=True)
class Cut:
    """How one parameter is divided.

    Args:
        axis: along which, None if every rank has all of it.
        pieces: equal pieces along it, each of which is cut by itself.
        turned: whether the file has it transposed (GPT-2's `Conv1D`).
        summed: whether its gradient is the sum of all ranks'.
    """

    axis: int | None = None
    pieces: int = 1
    turned: bool = False
    summed: bool = False

    def part(self, whole: Any, rank: int, size: int) -> Tensor:
        """Return a rank's part of a tensor, or of a safetensors slice, of which no more is read."""
        if self.axis is None:
            return self._turn(whole[:])
        axis = 1 - self.axis if self.turned else self.axis
        piece = _shape(whole)[axis] // self.pieces
        width = piece // size
        starts = (index * piece + rank * width for index in range(self.pieces))
        at = (slice(None),) * axis
        pieces = [whole[(*at, slice(start, start + width))] for start in starts]
        return self._turn(pieces[0] if self.pieces == 1 else torch.cat(pieces, axis))

    def joined(self, parts: list[Tensor]) -> Tensor:
        """Return the tensor as a file has it, of all ranks' parts in their order."""
        if self.axis is None:
            return self._turn(parts[0])
        cut = [part.chunk(self.pieces, self.axis) for part in parts]
        pieces = [own[index] for index in range(self.pieces) for own in cut]
        return self._turn(torch.cat(pieces, self.axis))

    def _turn(self, tensor: Tensor) -> Tensor:
        return tensor.t().contiguous() if self.turned else tensor


def _shape(whole: Any) -> list[int]:
    return list(whole.get_shape()) if hasattr(whole, "get_shape") else list(whole.shape)


def cut_of(pattern: Pattern, name: str, *, turned: bool = False) -> Cut:
    """Return how a parameter is divided, by its name."""
    module, _, last = name.rpartition(".")
    bias, turned = last == "bias", turned and last == "weight"
    if pattern.fused and re.fullmatch(pattern.fused, module):
        return Cut(0, 3, turned)
    if re.fullmatch(pattern.column, module) or (pattern.output and module == "lm_head"):
        return Cut(0, 1, turned)
    if re.fullmatch(pattern.row, module):
        return Cut(None if bias else 1, 1, turned)
    summed = pattern.shared is not None and re.fullmatch(pattern.shared, module) is not None
    return Cut(None, 1, turned, summed)


def pattern_of(config: Any, parts: int) -> Pattern:
    """Return how models of a transformers configuration are divided over so many ranks.

    Raises:
        UserError: the kind is not divided, or heads or widths are no multiple of `parts`.
    """
    kind = config.model_type
    if kind not in PATTERNS:
        raise UserError(
            f"hardware.model_parallel={parts}: models of type {kind} are not divided; allowed: "
            f"{', '.join(PATTERNS)}.\nType hardware=zero1 (data parallel) or hardware=gpu."
        )
    odd = {what: count for what, count in _widths(config).items() if count % parts}
    if odd:
        told = ", ".join(f"{count} {what}" for what, count in odd.items())
        divisors = (n for n in range(1, parts) if not any(c % n for c in _widths(config).values()))
        raise UserError(
            f"hardware.model_parallel={parts}: the backbone has {told}, no multiple of it; use "
            f"hardware.model_parallel={' or '.join(map(str, divisors))}."
        )
    pattern = PATTERNS[kind]
    return replace(pattern, output=pattern.output and config.vocab_size % parts == 0)


def _widths(config: Any) -> dict[str, int]:
    """Return what is cut, by its name for people."""
    found = {
        "heads": config.num_attention_heads,
        "key heads": getattr(config, "num_key_value_heads", None),
        "feed-forward width": _feed_forward(config),
    }
    return {what: int(count) for what, count in found.items() if count}


def _feed_forward(config: Any) -> int:
    named = (
        getattr(config, name, None) for name in ("d_ff", "n_inner", "ffn_dim", "intermediate_size")
    )
    width = next((width for width in named if width), None)
    return int(width or 4 * config.hidden_size)
