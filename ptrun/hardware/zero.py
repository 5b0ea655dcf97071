"""ZeRO-1 by DeepSpeed: gradients averaged over ranks, optimizer state divided among them."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ptrun.hardware.ranks import Ranks, imported

_MOMENTS = ("exp_avg", "exp_avg_sq")
_HEAD = "readout."
_TORCH_EPS = 1e-6  # torch's own clipping adds it to the norm


class Learned(nn.Module):
    """What a member learns, as the model that DeepSpeed is given; nothing calls it."""

    def __init__(self, learned: Mapping[str, nn.Parameter]):
        super().__init__()
        for name, parameter in learned.items():
            self.register_parameter(name.replace(".", "/"), parameter)
        self.ds_autotp_parsed = True  # nothing in it is to be cut


class ZeroStepper:
    """Steps of a torch optimizer whose state is divided over the ranks that share out the rows.

    Args:
        optimizer: over the learned parameters, each group in one precision; DeepSpeed takes it
            over, and keeps fp32 copies of bf16 ones in it.
        learned: by name.
        whole: whether a name's parameter is whole on every rank of a tensor-parallel group.
        ranks: who shares.
        device: `cpu` or `cuda`.
        divided: whether each rank keeps its own part of the state; else it is put together, so
            that another number of ranks can go on from it.
    """

    def __init__(
        self,
        optimizer: torch.optim.Adam,
        learned: Mapping[str, nn.Parameter],
        whole: Mapping[str, bool],
        ranks: Ranks,
        device: str,
        *,
        divided: bool,
    ):
        self.learned, self.whole, self.ranks, self.divided = learned, whole, ranks, divided
        self.names = {id(parameter): name for name, parameter in learned.items()}
        own = [part for group in optimizer.param_groups for part in self._divided(group)]
        optimizer.param_groups = own
        optimizer.register_step_pre_hook(self._leave_idle)
        # DeepSpeed adds gradients up in fp32 where the first group is bf16, for all groups alike.
        optimizer.param_groups.sort(key=lambda group: group["params"][0].dtype is torch.float32)
        self.engine, _, _, _ = imported(device).initialize(
            model=Learned(learned),
            optimizer=optimizer,
            dist_init_required=False,
            config=_config(ranks),
        )
        self.zero = self.engine.optimizer
        self.idle: set[int] = set()

    def _divided(self, group: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Return a group with each tensor of a head in one of its own.

        A batch of one data set leaves the other heads, and a group is updated whole.
        """
        heads = [p for p in group["params"] if self.names[id(p)].startswith(_HEAD)]
        rest = [p for p in group["params"] if not self.names[id(p)].startswith(_HEAD)]
        yield from ({**group, "params": own} for own in [rest, *([p] for p in heads)] if own)

    def _leave_idle(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        """Take the gradient from groups that have none on any rank, as torch leaves them."""
        for part in (p for group in optimizer.param_groups for p in group["params"]):
            if id(part) in self.idle:
                part.grad = None

    @property
    def scale(self) -> float:
        """What a loss is multiplied with before its backward: DeepSpeed averages over shares."""
        return float(self.ranks.data_parallel)

    @property
    def skipped(self) -> int:
        """How many steps so far were skipped: none."""
        return 0

    def skip(self) -> str | None:
        """Fail: numbers that are not finite stay so."""
        return ""

    def clip(self, limit: float | None) -> float:
        """Add the gradients up over the ranks; clip them by their norm, and return that norm."""
        self._reduce()
        norm = self._norm()
        if limit is not None and norm > limit:
            for gradient, _ in self._gradients():
                gradient.mul_(limit / (norm + _TORCH_EPS))
        return norm

    def _reduce(self) -> None:
        """Let DeepSpeed average the gradients, each rank keeping those it updates."""
        self._find_idle()
        for parameter in self.learned.values():
            if parameter.grad is None:  # the others may have one, and all must take part
                parameter.grad = torch.zeros_like(parameter)
        self.zero.setup_buckets()
        if self.zero.use_grad_accum_attribute:
            self.zero.fill_grad_accum_attribute()
        self.zero.set_gradient_accumulation_boundary(True)
        self.zero.reduce_gradients()

    def _find_idle(self) -> None:
        """Note which groups no rank has a gradient of."""
        groups = self.zero.bit16_groups
        some = [any(p.grad is not None for p in group) for group in groups]
        moved = torch.tensor(some, dtype=torch.int32, device=self.zero.device)
        dist.all_reduce(moved, dist.ReduceOp.MAX, group=self.ranks.data)
        parts = zip(self._parts(), moved.tolist(), strict=True)
        self.idle = {id(part) for part, seen in parts if not seen}

    def _gradients(self) -> Iterator[tuple[Tensor, str]]:
        """Return the gradients this rank updates by, pieces of parameters among them, by name."""
        for group, parameters in enumerate(self.zero.params_in_partition):
            gradients = self.zero.averaged_gradients[group]
            own = (g for g in gradients if not getattr(g, "_zero_padding", False))
            yield from ((g, self.names[id(p)]) for g, p in zip(own, parameters, strict=False))

    def _norm(self) -> float:
        """Return the norm over all ranks.

        Each part of the model counts once: of what every rank of a tensor-parallel group has
        whole, the first one's.
        """
        first = self.ranks.rank % self.ranks.model_parallel == 0
        counted = [g for g, name in self._gradients() if first or not self.whole[name]]
        squares = [g.double().square().sum() for g in counted]
        total = torch.stack(squares).sum() if squares else torch.zeros((), dtype=torch.float64)
        total = total.to(self.zero.device)
        dist.all_reduce(total)
        return math.sqrt(float(total))

    def step(self, rate: float) -> None:
        """Take a step at a learning rate, times each group's share, and drop the gradients."""
        for group in self.zero.param_groups:
            group["lr"] = rate * group["share"]
        self.zero.step()
        self.drop()

    def drop(self) -> None:
        """Drop the gradients."""
        self.zero.zero_grad()
        self.zero.set_gradient_accumulation_boundary(False)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return masters and moments, a rank's part or by name, and each group's updates."""
        tensors: dict[str, Tensor] = {}
        for group, part in enumerate(self._parts()):
            own = self.zero.optimizer.state.get(part, {})
            flat = {"master": part.detach(), **{key: own[key] for key in _MOMENTS if key in own}}
            for key, values in flat.items():
                tensors |= self._kept(key, group, values)
        states = [self.zero.optimizer.state.get(part, {}) for part in self._parts()]
        return tensors, {"zero_updates": [int(state.get("step", 0)) for state in states]}

    def _kept(self, key: str, group: int, values: Tensor) -> dict[str, Tensor]:
        if self.divided:
            return {f"{key}.{group}": values}
        found = [torch.empty_like(values) for _ in range(self.ranks.data_parallel)]
        dist.all_gather(found, values, group=self.ranks.data)
        names, sizes = self._order(group)
        pieces = torch.split(torch.cat(found)[: sum(sizes)], sizes)
        return {f"{key}.{name}": piece for name, piece in zip(names, pieces, strict=True)}

    def resume(self, tensors: Mapping[str, Tensor], plain: Mapping[str, Any]) -> None:
        """Go on from a state, the learned parameters already in place."""
        for group, part in enumerate(self._parts()):
            part.data.copy_(self._own("master", group, tensors))
            if updates := plain["zero_updates"][group]:
                moments = {k: self._own(k, group, tensors).to(part) for k in _MOMENTS}
                self.zero.optimizer.state[part] = {"step": torch.tensor(float(updates)), **moments}

    def _own(self, key: str, group: int, tensors: Mapping[str, Tensor]) -> Tensor:
        """Return this rank's part of a state."""
        if self.divided:
            return tensors[f"{key}.{group}"]
        names, _ = self._order(group)
        width = self._parts()[group].numel()
        flat = torch.zeros(width * self.ranks.data_parallel)
        known = torch.cat([tensors[f"{key}.{name}"].flatten() for name in names])
        flat[: known.numel()] = known
        return flat.narrow(0, self.ranks.share * width, width).clone()

    def _parts(self) -> list[Tensor]:
        """Return this rank's part of the learned parameters in fp32, a flat tensor a group."""
        parts: list[Tensor] = self.zero.single_partition_of_fp32_groups
        return parts

    def _order(self, group: int) -> tuple[list[str], list[int]]:
        """Return names and sizes of a group's parameters, as DeepSpeed lays them flat."""
        parameters = self.zero.bit16_groups[group]
        return [self.names[id(p)] for p in parameters], [p.numel() for p in parameters]


def _config(ranks: Ranks) -> dict[str, Any]:
    """Return DeepSpeed's configuration; batches, clipping and accumulation are ptrun's own."""
    return {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "managed_gradient_accumulation": False,
        "gradient_clipping": 0.0,  # DeepSpeed 0.19 would clip at 1
        "zero_optimization": {"stage": 1, "compute_grad_norm": False},
        "zero_allow_untested_optimizer": True,
        "tensor_parallel": {"autotp_size": ranks.model_parallel},
        "steps_per_print": 10**9,
    }
