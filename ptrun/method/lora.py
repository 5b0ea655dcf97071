"""LoRA: low-rank changes of the attention projections, the backbone frozen.

Hu et al. 2022, §4: W x + alpha / r B A x. A starts random and B at zero, so training starts from
the bare backbone. A baseline for prompts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from ptrun.backbone.base import BackboneInput, Update, Updates
from ptrun.backbone.injection import Division, Injection, keyed
from ptrun.backbone.packing import Packing
from ptrun.backbone.pretrained import PretrainedBackbone, sizes, transposed
from ptrun.errors import UserError
from ptrun.method.base import Method
from ptrun.readout.base import Batch
from ptrun.readout.head import check_dropout

_SITE = 3_000_000  # first dropout site, beyond those of attention


class LoRA(Method):
    """Low-rank maps `A [r, in]` and `B [out, r]` beside projections, and a head.

    Layers that share weights (ALBERT) share their maps. The maps are not merged into the weights.

    Args:
        rank: r.
        alpha: scale, times the rank.
        dropout: of A's input, in training.
        targets: last names of the linear maps to change; null is queries and values.

    >>> from ptrun.testing import read
    >>> method, batch, output = read("method=lora", "method.rank=2")
    >>> [tuple(tensor.shape) for tensor in method.lora.parameters()][:2]  # A, B
    [(2, 128), (128, 2)]
    """

    static = True
    changes_maps = True
    may_differ: ClassVar[Sequence[str]] = ("rank", "alpha", "dropout")

    def __init__(
        self,
        *run: Any,
        rank: int = 8,
        alpha: float = 16,
        dropout: float = 0.0,
        targets: list[str] | None = None,
    ):
        super().__init__(*run)
        self.adapt(rank, alpha, dropout, targets)

    def adapt(self, rank: int, alpha: float, dropout: float, targets: list[str] | None) -> None:
        """Make the low-rank maps of these options."""
        chosen = targets or list(self.backbone.architecture.attention_maps)
        if rank < 1:
            raise UserError(f"method.rank is {rank}; use 1 or more.")
        if alpha <= 0:
            raise UserError(f"method.alpha is {alpha}; use more than 0.")
        check_dropout("method", dropout)
        if dropout and not self.backbone.architecture.position_maps.isdisjoint(chosen):
            kind = self.backbone.config["model_type"]
            raise UserError(f"method.dropout is {dropout}; on a {kind} backbone use 0.")
        self.alpha, self.dropout = alpha, dropout
        maps = self._maps(chosen)
        self.shared = [names for names, _ in maps]
        self.lora = nn.ModuleDict(
            {key(names[0]): low_rank(rank, *sizes(module)) for names, module in maps}
        )

    @classmethod
    def shares(
        cls, node: Mapping[str, Any], backbone: PretrainedBackbone
    ) -> Mapping[str, Any] | None:
        """Return the options, or None if maps read relative positions, as DeBERTa v2's queries do.

        Members would need positions of their own.
        """
        architecture = backbone.architecture
        chosen = node["targets"] or architecture.attention_maps
        shared = architecture.position_maps.isdisjoint(chosen)
        return super().shares(node, backbone) if shared else None

    def placed(self) -> None:
        """Make the backbone's maps add the updates of a pass."""
        for path in (name for names in self.shared for name in names):
            module = self.backbone.model.get_submodule(path)
            if not hasattr(module, "ptrun_updated"):
                module.register_forward_hook(partial(updated, self.backbone.injection, path))
                module.ptrun_updated = True

    def inputs(self, batch: Batch) -> BackboneInput:
        """Return the text, with an update for each map."""
        text = super().inputs(batch)
        return replace(text, updates=[self.updates(text.mask.shape[0])])

    def updates(self, rows: int) -> Updates:
        """Return the updates of the maps, for so many rows."""
        owned: list[tuple[str, Any]] = [
            (name, self.lora[key(names[0])]) for names in self.shared for name in names
        ]
        maps = {}
        for site, (name, pair) in enumerate(owned, start=_SITE):
            down, up = pair.down.weight, pair.up.weight
            update = Update(down, up, self.alpha / len(down), self.dropout, site)
            if division := self.backbone.division:
                weight: Any = self.backbone.model.get_submodule(name).weight
                update = self.backbone.cut_of(weight).update(update, division)
            maps[name] = update
        return Updates(rows, maps)

    def merged(self) -> dict[str, Tensor]:
        """Return the weights of the changed maps with their updates added, by parameter.

        A weight that layers share has the name of the first one.
        """
        weights = {}
        for name, *_ in self.shared:
            pair: Any = self.lora[key(name)]
            added = pair.up.weight @ pair.down.weight
            added = added * (self.alpha / pair.down.out_features)
            weight = self.backbone.model.get_submodule(name).weight
            weights[f"{name}.weight"] = weight + (added.T if transposed(self.backbone) else added)
        return weights

    def _maps(self, targets: list[str]) -> list[tuple[list[str], Any]]:
        """Return the maps to change, grouped by weight, without those of an unused decoder."""
        groups: dict[int, tuple[list[str], Any]] = {}
        every = self.backbone.linear_maps()
        encodes = self.backbone.architecture.has_decoder and not self.readout.reads_decoder
        for name, module in every.items():
            unused = encodes and ".decoder." in f".{name}"
            if name.rpartition(".")[2] in targets and not unused:
                groups.setdefault(id(module.weight), ([], module))[0].append(name)
        names = dict.fromkeys(name.rpartition(".")[2] for name in every)
        if wrong := [target for target in targets if target not in names]:
            raise UserError(
                f"method.targets has {wrong[0]}, but {self.backbone.name} has no such linear map; "
                f"allowed: {', '.join(names)}."
            )
        return list(groups.values())


def key(name: str) -> str:
    """Return the key of a map's low-rank maps in `LoRA.lora`."""
    return name.replace(".", "_")


def low_rank(rank: int, inputs: int, outputs: int) -> nn.ModuleDict:
    """Return the maps `down [r, in]` and then `up [out, r]`, which starts at zero."""
    down, up = nn.Linear(inputs, rank, bias=False), nn.Linear(rank, outputs, bias=False)
    nn.init.kaiming_uniform_(down.weight, a=5**0.5)  # as in PEFT
    nn.init.zeros_(up.weight)
    return nn.ModuleDict({"down": down, "up": up})


def updated(
    injection: Injection, path: str, _module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor
) -> Tensor | None:
    """Return a map's output with the updates of the current pass; None if it has none.

    For a batch `[B, T, in]` or packed tokens `[1, N, in]`; members without an update of this map
    add zeros.
    """
    members = injection.given.updates if injection.given else ()
    updates = [member.maps.get(path) for member in members]
    if not any(updates):
        return None
    scale = next(update.scale for update in updates if update)
    of_one = partial(_of_one, width=output.shape[-1], scale=scale, division=injection.division)
    keys, tokens = injection.keys, injection.tokens
    x = inputs[0] if tokens is None else inputs[0].flatten(0, -2)[None]  # DeepSeek's has heads
    if len(updates) == 1:  # this also is where DeBERTa maps positions, which have no rows
        added = of_one(updates[0], x, keys, tokens)
    elif tokens is not None:
        packed = injection.members(members)
        zipped = zip(updates, packed.split(x), packed.tokens, strict=True)
        added = packed.joined([of_one(u, part, keys, at) for u, part, at in zipped])
    else:
        rows = [member.rows for member in members]
        parts = torch.split(x, rows)
        each = torch.split(keys, rows) if keys is not None else [None] * len(parts)
        by_rows = zip(updates, parts, each, strict=True)
        added = torch.cat([of_one(u, part, key, None) for u, part, key in by_rows])
    return torch.add(output, added.reshape(output.shape), alpha=scale).to(output.dtype)


def _of_one(
    update: Update | None,
    x: Tensor,
    keys: Tensor | None,
    tokens: Packing | None,
    *,
    width: int,
    scale: float,
    division: Division | None,
) -> Tensor:
    """Return the update of one member's rows or tokens, `width` wide, divided by `scale`."""
    if update is None:
        return x.new_zeros(*x.shape[:-1], width)
    part = division if update.cut else None
    origin = -part.first(x.shape[-1]) if part else 0
    wide = x.to(update.down.dtype)
    dropout = keyed(keys, tokens, update.site, update.dropout, origin)
    inner = functional.linear(wide if dropout is None else dropout(wide), update.down)
    added = functional.linear(part.sum(inner) if part else inner, update.up)
    return added if update.scale == scale else added * (update.scale / scale)
