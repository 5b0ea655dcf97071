"""LoRA: low-rank changes of the attention projections, the backbone frozen, through PEFT.

Hu et al. 2022, §4: W x + alpha / r B A x, with A at random and B at zero, so training starts from
the bare backbone. A row to compare prompts with; needs `pip install 'ptrun[peft]'`.
"""

from typing import Any, Unpack

from torch import nn

from ptrun.backbone.low_rank import LowRank, attach, linear_maps, need_peft, sizes
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from ptrun.method.base import Method
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
"""The projections of queries and values by `model_type`, as PEFT has them."""


class LoRA(Method):
    """Low-rank maps `A [r, in]` and `B [out, r]` beside projections, and a head.

    Calls of a shared layer (ALBERT) share theirs. Merged into the weights they cost nothing at
    inference; here they stay apart.

    Args:
        backbone: frozen; its modules are changed, so it serves one member at a time.
        task: what is answered.
        rank: r.
        alpha: scale, times the rank.
        dropout: of what A reads, in training.
        targets: last names of the linear maps that change; null is queries and values.
        reading: as in `ptrun.readout.reading.Reading`.

    Raises:
        UserError: PEFT is absent, a value is out of range, or the backbone has no such map.
    """

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
        need_peft()
        super().__init__(backbone, task, **reading)
        kind = backbone.config["model_type"]
        _check(rank, alpha, dropout, kind)
        self.alpha, self.dropout = alpha, dropout
        maps = self._maps(targets or list(TARGETS[kind]))
        self.shared = [names for names, _ in maps]
        self.lora = nn.ModuleDict(
            {_key(names[0]): LowRank(rank, *sizes(module)) for names, module in maps}
        )

    @property
    def alone(self) -> bool:
        """The changed modules serve this method only."""
        return True

    def placed(self) -> None:
        """Put PEFT's layers into the backbone, with this method's tensors in them."""
        owned: dict[str, Any] = {
            name: self.lora[_key(names[0])] for names in self.shared for name in names
        }
        attach(self.backbone, owned, self.alpha, self.dropout)

    def _maps(self, targets: list[str]) -> list[tuple[list[str], Any]]:
        """Return the maps that change, those that share a weight together; none that is not run."""
        found: dict[int, tuple[list[str], Any]] = {}
        every = linear_maps(self.backbone)
        for name, module in every.items():
            unread = name.startswith("decoder.") and not self.readout.reads_decoder
            if name.rpartition(".")[2] in targets and not unread:
                found.setdefault(id(module.weight), ([], module))[0].append(name)
        known = dict.fromkeys(name.rpartition(".")[2] for name in every)
        if wrong := [target for target in targets if target not in known]:
            raise UserError(
                f"method.targets has {wrong[0]}, but {self.backbone.name} has no such linear map; "
                f"allowed: {', '.join(known)}."
            )
        return list(found.values())


def _key(name: str) -> str:
    return name.replace(".", "_")


def _check(rank: int, alpha: float, dropout: float, kind: str) -> None:
    if rank < 1:
        raise UserError(f"method.rank is {rank}; use 1 or more.")
    if alpha <= 0:
        raise UserError(f"method.alpha is {alpha}; use more than 0.")
    if not 0 <= dropout < 1:
        raise UserError(f"method.dropout is {dropout}; use 0 or more, and less than 1.")
    if dropout and kind == "deberta-v2":  # its projections also read positions, which have no rows
        raise UserError(f"method.dropout is {dropout}; on a deberta-v2 backbone use 0.")
