"""How a tensor-parallel group divides the tensors of a model."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ptrun.backbone.base import Update
from ptrun.backbone.family import Family
from ptrun.backbone.injection import Division
from ptrun.errors import UserError


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

    def update(self, update: Update, division: Division) -> Update:
        """Return a rank's part of the low-rank update of a map that is cut."""
        down, up = update.down, update.up
        if self.axis == 0:
            thirds = up.view(self.pieces, -1, up.shape[1])
            own_up = division.own(thirds, 1).flatten(0, 1)
            return replace(update, down=division.read(down), up=own_up)
        if self.axis == 1:
            return replace(update, down=division.own(down, 1), cut=True)
        return update

    def _turn(self, tensor: Tensor) -> Tensor:
        return tensor.t().contiguous() if self.turned else tensor


# A plan says how each map is cut, as transformers' `base_model_tp_plan` does for Llama and others.
#
# As in Megatron, a map into heads or a feed-forward layer is cut by its outputs (`colwise`), and
# the map out of it by its inputs (`rowwise`), with a whole bias. Norms of single heads are whole,
# and each rank has a part of their gradients. All else is whole too, such as embeddings.

_STYLES = {
    "colwise": Cut(0),
    "rowwise": Cut(1),
    "replicated_with_grad_allreduce": Cut(summed=True),
    "thirds": Cut(0, 3),  # of queries, keys and values in one map
}


def _plan(colwise: str, rowwise: str, thirds: str = "") -> Mapping[str, str]:
    maps = {"colwise": colwise, "rowwise": rowwise, "thirds": thirds}
    return {path: style for style, paths in maps.items() for path in paths.split()}


_BERT = _plan(
    "self.query self.key self.value intermediate.dense",
    "attention.output.dense layer.*.output.dense",
)
_T5 = _plan("q k v wi wi_0 wi_1", "o wo")
_GPT2 = _plan("mlp.c_fc", "attn.c_proj mlp.c_proj", "attn.c_attn")
PLANS: Mapping[str, Mapping[str, str]] = {
    **dict.fromkeys(("bert", "roberta", "electra"), _BERT),
    **dict.fromkeys(("t5", "mt5"), _T5),
    **dict.fromkeys(("gpt2", "blocklm"), _GPT2),
    "megatron": _plan("q_proj k_proj v_proj fc1", "out_proj fc2"),
}
"""The plans of model types for which transformers has none."""


def cuts_of(model: nn.Module, family: Family, parts: int) -> dict[str, Cut]:
    """Return how each parameter of a whole model is divided over `parts` ranks, by name.

    Raises:
        UserError: the model has no plan that can be used, or a width is not a multiple of `parts`.
    """
    from transformers.pytorch_utils import Conv1D

    config: Any = model.config
    library = config.model_type not in PLANS
    plan = dict(config.base_model_tp_plan or {} if library else PLANS[config.model_type])
    parameters = dict(model.named_parameters())
    output = parameters.get("lm_head.weight")  # None if it is the word embeddings
    if plan and output is not None and len(output) % parts == 0:
        plan["lm_head"] = "colwise"
    ends = {
        re.compile(r"(.+\.)?" + re.escape(path).replace(r"\*", r"\d+")): style
        for path, style in plan.items()
    }
    cuts, widths = {}, {"heads": getattr(config, "num_attention_heads", 0)}
    widths["key heads"] = getattr(config, "num_key_value_heads", None) or 0
    for name, parameter in parameters.items():
        path, _, kind = name.rpartition(".")
        turned = kind == "weight" and isinstance(model.get_submodule(path), Conv1D)
        style = next((style for end, style in ends.items() if end.fullmatch(path)), "")
        cut = replace(_STYLES.get(style, Cut()), turned=turned)
        cuts[name] = cut = Cut() if (style, kind) == ("rowwise", "bias") else cut
        if cut.axis is not None:
            end = f"{'inputs' if cut.axis else 'outputs'} of {path.rpartition('.')[2]}"
            widths[end] = parameter.shape[abs(cut.axis - turned)] // cut.pieces
    if library and (reason := _unfit(plan, cuts, family)):
        raise UserError(
            f"hardware.model_parallel={parts}: models of type {config.model_type} cannot be "
            f"divided: {reason}.\nType hardware=zero1 (data parallel) or hardware=gpu."
        )
    if odd := [f"{width} {what}" for what, width in widths.items() if width % parts]:
        divisors = [n for n in range(1, parts) if not any(w % n for w in widths.values())]
        raise UserError(
            f"hardware.model_parallel={parts}: the backbone has {', '.join(odd)}, not a multiple; "
            f"use hardware.model_parallel={' or '.join(map(str, divisors))}."
        )
    return cuts


def _unfit(plan: Mapping[str, str], cuts: Mapping[str, Cut], family: Family) -> str | None:
    """Return why a plan of transformers cannot be used, or None."""
    if not plan:
        return "transformers has no plan for them"
    if styles := sorted({*plan.values()} - _STYLES.keys()):
        return f"transformers divides them by {', '.join(styles)}"
    # what stands beside a map that is cut by its outputs reads a rank's part
    parents = {name.rsplit(".", 2)[0] for name, cut in cuts.items() if cut.axis == 0}
    for name in cuts:
        weight = cuts.get(f"{name.rpartition('.')[0]}.weight", cuts[name])
        inside = any(name.startswith(f"{parent}.") for parent in parents)
        if weight == Cut() and (inside or f".{family.paths.attention}." in name):
            return f"the plan of transformers leaves out {name}"
    return family.bars_prefixes or None


# Cuts a model that was built without weights, so that each rank reads only its slices of the files.
#
# DeepSpeed's AutoTP would load the whole model first (0.19), and send a sum for each map.


def divide(model: Any, family: Family, division: Division) -> dict[str, Cut]:
    """Make a whole model without weights one rank's part of it; return the cuts by name."""
    cuts = cuts_of(model, family, division.size)
    for parent, module in list(model.named_modules()):
        _cut(parent, module, division, cuts)
    if cuts.get("lm_head.weight", Cut()).axis == 0:
        model.lm_head.register_forward_hook(lambda _module, _inputs, out: division.whole(out, -1))
    return cuts


_READ = ("hidden_states", "key_value_states")  # what the maps of an attention or a layer read
_WIDTHS = (
    *("n_heads", "num_heads", "num_attention_heads"),
    *("inner_dim", "all_head_size", "embed_dim", "split_size"),
)
"""Attributes of a module whose maps are cut: heads and widths that become a rank's own."""


def _cut(parent: str, module: nn.Module, division: Division, cuts: Mapping[str, Cut]) -> None:
    """Replace the maps in a module by this rank's part of them, and GPT-2's by usual ones.

    The ranks sum the gradient of what several maps read once, as in Megatron.
    """
    columns: list[nn.Module] = []
    for child, linear in list(module.named_children()):
        cut = cuts.get(f"{parent}.{child}.weight".lstrip("."), Cut())
        if cut.turned or cut.axis is not None:
            part = _Part(linear, cut, division)
            setattr(module, child, part)
            columns += [part] if cut.axis == 0 else []
    if parent.endswith("relative_attention_bias"):  # of T5; it is whole, with a whole gradient
        module.register_forward_hook(lambda _module, _inputs, bias: division.own(bias, -1))
    if not columns:
        return

    def read(_: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        changed = {k: division.read(v) for k, v in named.items() if k in _READ and v is not None}
        if not arguments and not changed:
            raise RuntimeError(f"{parent} reads none of {_READ}, so its gradients would be parts.")
        return (*map(division.read, arguments[:1]), *arguments[1:]), named | changed

    reader = module if len(columns) > 1 else columns[0]
    reader.register_forward_pre_hook(read, with_kwargs=True)
    for width in _WIDTHS:
        if hasattr(module, width):
            setattr(module, width, getattr(module, width) // division.size)


class _Part(nn.Linear):
    """A rank's part of a map; `in_features` and `out_features` are those of the whole map.

    If it is cut by its inputs, the ranks sum its products, and then add the bias, which is whole.
    """

    def __init__(self, linear: Any, cut: Cut, division: Division):
        outputs, inputs = reversed(linear.weight.shape) if cut.turned else linear.weight.shape
        parts = [division.size if cut.axis == axis else 1 for axis in (0, 1)]
        super().__init__(
            inputs // parts[1], outputs // parts[0], linear.bias is not None, device="meta"
        )
        self.in_features, self.out_features = inputs, outputs
        self.division = division if cut.axis == 1 else None

    def forward(self, input: Tensor) -> Tensor:
        """Return `[..., inputs] -> [..., outputs]`, where one of the two is this rank's part."""
        if self.division is None:
            return super().forward(input)
        total = self.division.sum(nn.functional.linear(input, self.weight))
        return total if self.bias is None else total + self.bias
