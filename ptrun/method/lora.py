"""LoRA: low-rank changes of the attention projections, the backbone frozen.

Hu et al. 2022, §4: W x + alpha / r B A x. A starts random and B at zero, so training starts from
the bare backbone. A baseline for prompts.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import nn

from ptrun.backbone.base import BackboneInput, Update, Updates
from ptrun.backbone.maps.linear import linear_maps, sizes
from ptrun.backbone.maps.low_rank import wire_maps
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from ptrun.method.base import Method, check_dropout
from ptrun.prompt.low_rank import LowRank
from ptrun.readout.base import Batch
from ptrun.readout.reading import Reading
from ptrun.task.base import Task

_SITE = 3_000_000  # first dropout site, beyond those of attention


class LoRA(Method):
    """Low-rank maps `A [r, in]` and `B [out, r]` beside projections, and a head.

    Layers that share weights (ALBERT) share their maps. The maps are not merged into the weights.

    Args:
        backbone: frozen.
        rank: r.
        alpha: scale, times the rank.
        dropout: of A's input, in training.
        targets: last names of the linear maps to change; null is queries and values.

    Raises:
        UserError: a value is out of range, or the backbone has no such map.
    """

    changes_maps = True
    may_differ = ("rank", "alpha", "dropout")

    def __init__(
        self,
        backbone: PretrainedBackbone,
        task: Task,
        reading: Reading | None = None,
        *,
        rank: int = 8,
        alpha: float = 16,
        dropout: float = 0.0,
        targets: list[str] | None = None,
    ):
        super().__init__(backbone, task, reading)
        chosen = targets or list(backbone.architecture.attention_maps)
        _check(rank, alpha)
        check_dropout(dropout)
        if dropout and not backbone.architecture.position_maps.isdisjoint(chosen):
            kind = backbone.config["model_type"]
            raise UserError(f"method.dropout is {dropout}; on a {kind} backbone use 0.")
        self.alpha, self.dropout = alpha, dropout
        maps = self._maps(chosen)
        self.shared = [names for names, _ in maps]
        self.lora = nn.ModuleDict(
            {key(names[0]): LowRank(rank, *sizes(module)) for names, module in maps}
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
        wire_maps(self.backbone, [name for names in self.shared for name in names])

    def inputs(self, batch: Batch) -> BackboneInput:
        """Return the text, with an update for each map."""
        text = super().inputs(batch)
        return replace(text, updates=[self.updates(text.mask.shape[0])])

    def updates(self, rows: int) -> Updates:
        """Return the updates of the maps, for so many rows."""
        owned = [(name, self.lora[key(names[0])]) for names in self.shared for name in names]
        maps = {
            name: self._update(low_rank, site)
            for site, (name, low_rank) in enumerate(owned, start=_SITE)
        }
        return Updates(rows, maps)

    def _update(self, low_rank: Any, site: int) -> Update:
        scale = self.alpha / low_rank.down.out_features
        return Update(low_rank.down.weight, low_rank.up.weight, scale, self.dropout, site)

    def _maps(self, targets: list[str]) -> list[tuple[list[str], Any]]:
        """Return the maps to change, grouped by weight, without those of an unused decoder."""
        groups: dict[int, tuple[list[str], Any]] = {}
        every = linear_maps(self.backbone)
        for name, module in every.items():
            unused = name.startswith("decoder.") and not self.readout.reads_decoder
            if name.rpartition(".")[2] in targets and not unused:
                groups.setdefault(id(module.weight), ([], module))[0].append(name)
        known = dict.fromkeys(name.rpartition(".")[2] for name in every)
        if wrong := [target for target in targets if target not in known]:
            raise UserError(
                f"method.targets has {wrong[0]}, but {self.backbone.name} has no such linear map; "
                f"allowed: {', '.join(known)}."
            )
        return list(groups.values())


def key(name: str) -> str:
    """Return the key of a map's low-rank maps in `LoRA.lora`."""
    return name.replace(".", "_")


def _check(rank: int, alpha: float) -> None:
    if rank < 1:
        raise UserError(f"method.rank is {rank}; use 1 or more.")
    if alpha <= 0:
        raise UserError(f"method.alpha is {alpha}; use more than 0.")
