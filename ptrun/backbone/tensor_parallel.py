"""How a tensor-parallel group divides the tensors of a model, and loads them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ptrun.backbone.injection import Division
from ptrun.backbone.weights import fill, skeleton
from ptrun.errors import UserError

# How a tensor-parallel group divides the tensors of each kind of model.
#
# As in Megatron, a map into heads or into a feed-forward layer is cut by its outputs (`column`) and
# the map out of it by its inputs (`row`). Embeddings, norms and T5's relative bias are replicated.


@dataclass(frozen=True)
class CutPattern:
    """Regular expressions for full module paths: which maps are cut, and how.

    Args:
        column: cut by outputs, with the bias.
        row: cut by inputs; the bias is replicated.
        fused: cut by outputs in each of three equal pieces (query, key and value in one map).
        output: whether an untied `lm_head` is cut by the vocabulary, if its size is a multiple.
        shared: replicated but applied to the rank's heads, so each rank has a partial gradient.
    """

    column: str
    row: str
    fused: str | None = None
    output: bool = False
    shared: str | None = None


_BERT = CutPattern(
    r".*layer\.\d+\.(attention\.self\.(query|key|value)|intermediate\.dense)",
    r".*layer\.\d+\.(attention\.)?output\.dense",
)
_T5 = CutPattern(r".*\.(q|k|v|wi|wi_0|wi_1)", r".*\.(o|wo)", output=True)
_LLAMA = CutPattern(
    r".*\.(q|k|v|gate|up)_proj", r".*\.(o|down)_proj", shared=r".*\.self_attn\.[qk]_norm"
)
_GPT2 = CutPattern(r".*\.mlp\.c_fc", r".*\.(attn|mlp)\.c_proj", fused=r".*\.attn\.c_attn")
_MEGATRON = CutPattern(r".*\.(q_proj|k_proj|v_proj|fc1)", r".*\.(out_proj|fc2)")
PATTERNS: Mapping[str, CutPattern] = {
    **dict.fromkeys(("bert", "roberta", "electra"), _BERT),
    **dict.fromkeys(("t5", "mt5"), _T5),
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3"), _LLAMA),
    **dict.fromkeys(("gpt2", "blocklm"), _GPT2),
    "megatron": _MEGATRON,
}
"""Patterns by `model_type`; other models cannot be divided."""


@dataclass(frozen=True)
class Cut:
    """How one parameter is divided.

    Args:
        axis: the axis that is cut, None for a replicated parameter.
        pieces: number of equal pieces along the axis; each is cut separately.
        turned: whether the file stores the transpose (GPT-2's `Conv1D`).
        summed: whether its gradient is the sum over all ranks.

    >>> import torch
    >>> from ptrun.backbone.tensor_parallel import Cut
    >>> parts = [Cut(axis=0).part(torch.eye(4), rank, size=2) for rank in (0, 1)]
    >>> torch.equal(Cut(axis=0).joined(parts), torch.eye(4))
    True
    """

    axis: int | None = None
    pieces: int = 1
    turned: bool = False
    summed: bool = False

    def part(self, tensor: Any, rank: int, size: int) -> Tensor:
        """Return a rank's part of a tensor, or of a safetensors slice without reading the rest."""
        if self.axis is None:
            return self._turn(tensor[:])
        axis = 1 - self.axis if self.turned else self.axis
        shape = tensor.get_shape() if hasattr(tensor, "get_shape") else tensor.shape
        piece = shape[axis] // self.pieces
        width = piece // size
        starts = (index * piece + rank * width for index in range(self.pieces))
        at = (slice(None),) * axis
        pieces = [tensor[(*at, slice(start, start + width))] for start in starts]
        return self._turn(pieces[0] if self.pieces == 1 else torch.cat(pieces, axis))

    def joined(self, parts: list[Tensor]) -> Tensor:
        """Return the tensor as stored in a file, from the parts of all ranks in order."""
        if self.axis is None:
            return self._turn(parts[0])
        cut = [part.chunk(self.pieces, self.axis) for part in parts]
        pieces = [part[index] for index in range(self.pieces) for part in cut]
        return self._turn(torch.cat(pieces, self.axis))

    def _turn(self, tensor: Tensor) -> Tensor:
        return tensor.t().contiguous() if self.turned else tensor


def cut_of(pattern: CutPattern, name: str, *, turned: bool = False) -> Cut:
    """Return how the parameter of this name is divided."""
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


def pattern_of(config: Any, parts: int) -> CutPattern:
    """Return how models of a transformers configuration are divided over `parts` ranks.

    Raises:
        UserError: the model type cannot be divided, or a width is not a multiple of `parts`.
    """
    kind = config.model_type
    if kind not in PATTERNS:
        raise UserError(
            f"hardware.model_parallel={parts}: models of type {kind} cannot be divided; allowed: "
            f"{', '.join(PATTERNS)}.\nType hardware=zero1 (data parallel) or hardware=gpu."
        )
    names = ("d_ff", "n_inner", "ffn_dim", "intermediate_size")
    feed_forward = next((width for n in names if (width := getattr(config, n, None))), None)
    sizes = {
        "heads": config.num_attention_heads,
        "key heads": getattr(config, "num_key_value_heads", None),
        "feed-forward width": feed_forward or 4 * config.hidden_size,
    }
    widths = {what: int(width) for what, width in sizes.items() if width}
    if odd := [f"{width} {what}" for what, width in widths.items() if width % parts]:
        divisors = [n for n in range(1, parts) if not any(w % n for w in widths.values())]
        raise UserError(
            f"hardware.model_parallel={parts}: the backbone has {', '.join(odd)}, not a multiple; "
            f"use hardware.model_parallel={' or '.join(map(str, divisors))}."
        )
    pattern = PATTERNS[kind]
    return replace(pattern, output=pattern.output and config.vocab_size % parts == 0)


# Loads one rank's part of a model that a tensor-parallel group divides.
#
# The model is built without weights and cut. Each rank then reads only its slices of the
# safetensors files, so no rank ever holds the whole model. DeepSpeed's AutoTP would load it whole
# first (0.19), and send a sum for each map. T5's relative bias is replicated, and each rank uses
# the columns of its heads, so that every rank has its whole gradient.


def load(
    model_class: Any, config: Any, folder: Path, own_output: bool, division: Division,
    dtype: torch.dtype,
) -> tuple[Any, dict[int, Cut], set[str]]:  # fmt: skip
    """Return a rank's part of a model, the cuts by parameter id, and the names the files lack.

    A parameter keeps its id when its device or dtype changes. `own_output` is True for a T5 with an
    untied output matrix.
    """
    pattern = pattern_of(config, division.size)
    model = skeleton(model_class, config, folder, own_output=own_output)
    turned = _turn_conv1d(model)
    cuts = {
        name: cut_of(pattern, name, turned=name.rpartition(".")[0] in turned)
        for name, _ in model.named_parameters()
    }
    _cut(model, pattern, division, cuts)

    def own(name: str, tensor: Any) -> Tensor:
        return cuts[name].part(tensor, division.rank, division.size)

    missing = fill(model, folder, dtype, division.device, own)
    by_parameter = {id(p): cuts[name] for name, p in model.named_parameters()}
    return model.to(division.device), by_parameter, missing


def _turn_conv1d(model: nn.Module) -> set[str]:
    """Replace GPT-2's transposed maps by usual ones; return their names."""
    from transformers.pytorch_utils import Conv1D

    transposed = {name: m for name, m in model.named_modules() if isinstance(m, Conv1D)}
    for name, module in transposed.items():
        parent, _, child = name.rpartition(".")
        inputs, outputs = module.weight.shape
        setattr(model.get_submodule(parent), child, nn.Linear(inputs, outputs, device="meta"))
    return set(transposed)


_READ = ("hidden_states", "key_value_states")  # what the maps of an attention or a layer read
_WIDTHS = (
    *("n_heads", "num_heads", "num_attention_heads"),
    *("inner_dim", "all_head_size", "embed_dim", "split_size"),
)
"""Attributes of a module whose maps are cut: heads and widths that become a rank's own."""


def _cut(model: Any, pattern: CutPattern, division: Division, cuts: Mapping[str, Cut]) -> None:
    """Replace the maps that are cut by this rank's part of them, which send their messages."""
    for parent, module in list(model.named_modules()):
        columns: list[nn.Module] = []
        for child, linear in list(module.named_children()):
            axis = cuts.get(f"{parent}.{child}.weight".lstrip("."), Cut()).axis
            if axis is not None:
                setattr(module, child, part := _part_of(linear, axis, division))
                columns += [part] if axis == 0 else []
        if columns:
            _connect(module, columns, division)
        if parent.endswith("relative_attention_bias"):
            module.register_forward_hook(lambda _module, _inputs, bias: division.own(bias, -1))
    if pattern.output and "lm_head.weight" in cuts:
        model.lm_head.register_forward_hook(lambda _module, _inputs, out: division.whole(out, -1))


def _connect(module: nn.Module, columns: Sequence[nn.Module], division: Division) -> None:
    """Let the ranks sum the gradient of what a module's `columns` read, and set its widths.

    What several maps read sends one sum, as in Megatron.
    """

    def read(_: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        changed = {k: division.read(v) for k, v in named.items() if k in _READ and v is not None}
        return (*map(division.read, arguments[:1]), *arguments[1:]), named | changed

    reader = module if len(columns) > 1 else columns[0]
    reader.register_forward_pre_hook(read, with_kwargs=True)
    for width in _WIDTHS:
        if hasattr(module, width):
            setattr(module, width, getattr(module, width) // division.size)


def _part_of(linear: nn.Linear, axis: int, division: Division) -> nn.Linear:
    """Return a map without weights that is cut by its outputs (axis 0) or its inputs (axis 1)."""
    inputs, outputs, bias = linear.in_features, linear.out_features, linear.bias is not None
    if axis == 1:
        return _RowMap(inputs // division.size, outputs, bias, division)
    return nn.Linear(inputs, outputs // division.size, bias, device="meta")


class _RowMap(nn.Linear):
    """A map cut by its inputs: it sums over the ranks, and then adds the bias, which is whole."""

    def __init__(self, inputs: int, outputs: int, bias: bool, division: Division):
        super().__init__(inputs, outputs, bias, device="meta")
        self.division = division

    def forward(self, input: Tensor) -> Tensor:
        """Return `[..., inputs / ranks] -> [..., outputs]`."""
        total = self.division.sum(nn.functional.linear(input, self.weight))
        return total if self.bias is None else total + self.bias
