"""LoRA: low-rank changes of the attention projections, the backbone frozen, through PEFT.

Hu et al. 2022, §4: W x + alpha / r B A x. A starts random and B at zero, so training starts from
the bare backbone. A baseline for prompts; it needs `pip install 'ptrun[peft]'`.
"""

from typing import Any, Unpack

from torch import nn

from ptrun.backbone.peft.low_rank import LowRank, attach, linear_maps, need_peft, sizes
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from ptrun.method.base import Method, check_dropout
from ptrun.readout.reading import Reading
from ptrun.task.base import Task

_LLAMA = ("q_proj", "v_proj")
TARGETS = {
    **dict.fromkeys(("bert", "roberta", "electra", "albert"), ("query", "value")),
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3", "megatron"), _LLAMA),
    **dict.fromkeys(("t5", "mt5"), ("q", "v")),
    "deberta-v2": ("query_proj", "value_proj"),
    "deberta": ("in_proj",),  # queries, keys and values in one map
    **dict.fromkeys(("gpt2", "blocklm"), ("c_attn",)),  # likewise
}
"""The query and value projections by `model_type`, as in PEFT."""


class LoRA(Method):
    """Low-rank maps `A [r, in]` and `B [out, r]` beside projections, and a head.

    Layers that share weights (ALBERT) share their maps. The maps are not merged into the weights.

    Args:
        backbone: frozen. Its modules change, so it serves one member at a time.
        rank: r.
        alpha: scale, times the rank.
        dropout: of A's input, in training.
        targets: last names of the linear maps to change; null is queries and values.

    Raises:
        UserError: PEFT is absent, a value is out of range, or the backbone has no such map.
    """

    changes_modules = True

    def __init__(
        self,
        backbone: PretrainedBackbone,
        task: Task,
        *,
        rank: int = 8,
        alpha: float = 16,
        dropout: float = 0.0,
        targets: list[str] | None = None,
        **reading: Unpack[Reading],
    ):
        need_peft("method=lora")
        super().__init__(backbone, task, **reading)
        kind = backbone.config["model_type"]
        _check(rank, alpha, dropout, kind)
        self.alpha, self.dropout = alpha, dropout
        maps = self._maps(targets or list(TARGETS[kind]))
        self.shared = [names for names, _ in maps]
        self.lora = nn.ModuleDict(
            {key(names[0]): LowRank(rank, *sizes(module)) for names, module in maps}
        )

    def placed(self) -> None:
        """Put PEFT's layers into the backbone, with this method's tensors in them."""
        maps: dict[str, Any] = {n: self.lora[key(ns[0])] for ns in self.shared for n in ns}
        attach(self.backbone, maps, self.alpha, self.dropout)

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


def _check(rank: int, alpha: float, dropout: float, kind: str) -> None:
    if rank < 1:
        raise UserError(f"method.rank is {rank}; use 1 or more.")
    if alpha <= 0:
        raise UserError(f"method.alpha is {alpha}; use more than 0.")
    check_dropout(dropout)
    if dropout and kind == "deberta-v2":  # its projections also read positions, which have no rows
        raise UserError(f"method.dropout is {dropout}; on a deberta-v2 backbone use 0.")
