"""DeepSpeed: the same training loop on several ranks, which divide rows (ZeRO-1) and the model.

ptrun hardware=zero1        ptrun hardware=zero1_mp4        ptrun hardware=zero1 hardware.ranks=2

The papers used ZeRO-1. In full tuning it divides 12 bytes a parameter. With a frozen backbone it
saves almost nothing: 100 vectors of T5-XXL have 3 MB of moments.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import Parameter

from ptrun.backbone.tensor_parallel import cuts_of
from ptrun.errors import UserError
from ptrun.hardware.device import resolved
from ptrun.hardware.ranks import Ranks, imported, joined
from ptrun.hardware.torch_engine import TorchEngine
from ptrun.method.base import Method
from ptrun.training.member import Member
from ptrun.training.optim import MOMENTS, TorchStepper, counted


@dataclass
class DeepSpeedEngine(TorchEngine):
    """Trains one run on several ranks.

    Args:
        backbone, precision, token_budget, checkpointing: see `TorchEngine`. With `bf16` a tuned
            backbone has bf16 weights too; its fp32 copies and moments are divided.
        device: `cpu`, `cuda` or `auto`, which is `cuda` if it is available.
        model_parallel: number of ranks that hold one model together.
        ranks: number of ranks to start on this machine without a launcher. Null is one for each
            visible GPU, or `model_parallel` on a CPU.
    """

    counts = ("model_parallel", "ranks", "token_budget", "population")
    replays = False
    model_parallel: int = field(kw_only=True)
    ranks: int | None = field(kw_only=True)

    def __post_init__(self) -> None:
        """Choose precision and device, and check the fields and that the model can be divided."""
        self.precision = resolved(self.precision, self.device, self.backbone.dtype)
        if self.device == "auto":
            self.device = "cuda" if torch.cuda.is_available() else "cpu"
        if self.precision == "fp16":
            raise UserError(
                "hardware.precision=fp16: loss scaling does not support several ranks; type "
                "hardware.precision=bf16 or fp32, or hardware=gpu."
            )
        if self.model_parallel > 1 and self.quantization != "none":
            raise UserError(
                f"hardware.quantization={self.quantization}: matrices that are divided over "
                f"{self.model_parallel} ranks stay dense; type hardware=gpu or hardware=zero1."
            )
        if self.model_parallel > 1:
            cuts_of(self.backbone.model, self.backbone.architecture, self.model_parallel)
        self.population = 1  # a stepper averages the gradients of one member
        super().__post_init__()

    def connect(self) -> Ranks:
        """Join the other processes of the run."""
        self.world = joined(self.model_parallel, self.device)
        return self.world

    def weight_type(self, *, tuned: bool) -> torch.dtype:
        """Return the precision of the weights; those of a tuned backbone have fp32 copies."""
        return super().weight_type(tuned=False)

    def load(self, *, tuned: bool) -> None:
        """Load this rank's part of the weights."""
        self.backbone.division = self.world.division(self.device)
        super().load(tuned=tuned)

    def place(self, methods: Sequence[Method]) -> None:
        """Move backbone and methods to the device; refuse those that ranks cannot divide."""
        if self.world.data_parallel > 1 and any(m.reading.whole for m in methods):
            raise UserError(
                "readout.objective=batch_margin needs all rows of a batch, which are divided over "
                f"{self.world.data_parallel} ranks; type readout.objective=margin or hardware=gpu."
            )
        if self.world.model_parallel > 1 and any(m.changes_modules for m in methods):
            raise UserError(
                f"{type(methods[0]).__name__} replaces maps of the backbone, which are divided "
                f"over {self.world.model_parallel} ranks; type hardware=zero1 or hardware=gpu."
            )
        super().place(methods)

    def equip(self, member: Member) -> None:
        """Let DeepSpeed take the member's steps."""
        if not member.learned:
            return
        division = self.backbone.division
        for parameter in member.learned.values():
            if division is not None and self.backbone.cut_of(parameter).summed:
                parameter.register_hook(division.summed)  # type: ignore[no-untyped-call]
        member.stepper = ZeroStepper(
            member.optimizer,
            member.learned,
            {n: self.backbone.cut_of(p).axis is None for n, p in member.learned.items()},
            self.world,
            self.device,
            divided=member.method.tunes_backbone,
        )

    def whole(self, method: Method) -> dict[str, Tensor]:
        """Return a method's exported tensors, joined from all ranks; empty except on rank 0."""
        learned: dict[str, Parameter] = method.learned()
        tensors: dict[str, Tensor] = {}
        for name, part in sorted(method.exported().items()):
            cut, parts = self.backbone.cut_of(learned.get(name)), [part]
            if cut.axis is not None and not self.world.share:
                parts = [torch.empty_like(part) for _ in range(self.model_parallel)]
                gathered = parts if self.world.main else None
                dist.gather(part.contiguous(), gathered, group=self.world.tensor, group_dst=0)
                parts = [part.cpu() for part in parts] if self.world.main else []
            if self.world.main:
                tensors[name] = cut.joined(parts)
        return tensors


# ZeRO-1 by DeepSpeed: gradients are averaged over ranks, which divide the optimizer state.

_HEAD = "readout."
_TORCH_EPS = 1e-6  # as in `torch.nn.utils.clip_grad_norm_`


class Learned(nn.Module):
    """The learned parameters as a module for DeepSpeed; nothing calls it."""

    def __init__(self, learned: Mapping[str, nn.Parameter]):
        super().__init__()
        for name, parameter in learned.items():
            self.register_parameter(name.replace(".", "/"), parameter)
        self.ds_autotp_parsed = True  # keeps DeepSpeed from cutting it


class ZeroStepper(TorchStepper):
    """Steps of a torch optimizer whose state is divided over the ranks of `Ranks.data`.

    Args:
        optimizer: of the learned parameters, each group in one precision. DeepSpeed takes it over,
            and keeps fp32 copies of bf16 parameters in it.
        learned: parameters by name.
        whole: by name, whether a parameter is whole on every rank of a tensor-parallel group.
        ranks: the ranks of the run.
        device: `cpu` or `cuda`.
        divided: save each rank's own part of the state. Otherwise the whole state is saved, and
            another number of ranks can resume from it.
    """

    skips_on_device = False

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
        self.whole, self.ranks, self.divided = whole, ranks, divided
        self.names = {id(parameter): name for name, parameter in learned.items()}
        groups = [part for group in optimizer.param_groups for part in self._divided(group)]
        optimizer.param_groups = groups
        optimizer.register_step_pre_hook(self._skip_idle)
        # DeepSpeed sums the gradients of all groups in fp32 if the first group is bf16.
        optimizer.param_groups.sort(key=lambda group: group["params"][0].dtype is torch.float32)
        self.engine, _, _, _ = imported(device).initialize(
            model=Learned(learned),
            optimizer=optimizer,
            dist_init_required=False,
            config={  # ptrun batches, clips and accumulates by itself
                "train_micro_batch_size_per_gpu": 1,
                "gradient_accumulation_steps": 1,
                "managed_gradient_accumulation": False,
                "gradient_clipping": 0.0,  # DeepSpeed 0.19 would clip at 1
                "zero_optimization": {"stage": 1, "compute_grad_norm": False},
                "zero_allow_untested_optimizer": True,
                "tensor_parallel": {"autotp_size": ranks.model_parallel},
                "steps_per_print": 10**9,
            },
        )
        self.zero = self.engine.optimizer
        super().__init__(self.zero, learned)
        self.idle: set[int] = set()

    def _divided(self, group: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Split a group, so that each tensor of a head has its own.

        DeepSpeed updates whole groups, but a batch of one data set must not update other heads.
        """
        heads = [p for p in group["params"] if self.names[id(p)].startswith(_HEAD)]
        rest = [p for p in group["params"] if not self.names[id(p)].startswith(_HEAD)]
        yield from ({**group, "params": part} for part in [rest, *([p] for p in heads)] if part)

    def _skip_idle(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        """Drop the zero gradient of groups without one on any rank, so torch skips them."""
        for part in (p for group in optimizer.param_groups for p in group["params"]):
            if id(part) in self.idle:
                part.grad = None

    @property
    def scale(self) -> float:
        """Factor of a loss before its backward pass: DeepSpeed averages over the shares."""
        return float(self.ranks.data_parallel)

    def clip(self, limit: float | None) -> Tensor:
        """Sum the gradients over the ranks, clip them to a norm, and return their norm, `[]`."""
        self._reduce()
        norm = self._norm()
        if limit is not None and norm > limit:
            factor = limit / (float(norm) + _TORCH_EPS)
            for gradient, _ in self._gradients():
                gradient.mul_(factor)
        return norm

    def _reduce(self) -> None:
        """Let DeepSpeed average the gradients; each rank keeps those that it updates."""
        # groups without a gradient on any rank
        here = [any(p.grad is not None for p in group) for group in self.zero.bit16_groups]
        active = torch.tensor(here, dtype=torch.int32, device=self.zero.device)
        dist.all_reduce(active, dist.ReduceOp.MAX, group=self.ranks.data)
        parts = zip(self._parts(), active.tolist(), strict=True)
        self.idle = {id(part) for part, used in parts if not used}
        for parameter in self.learned.values():
            if parameter.grad is None:  # other ranks may have one, and all must take part
                parameter.grad = torch.zeros_like(parameter)
        self.zero.setup_buckets()
        if self.zero.use_grad_accum_attribute:
            self.zero.fill_grad_accum_attribute()
        self.zero.set_gradient_accumulation_boundary(True)
        self.zero.reduce_gradients()

    def _gradients(self) -> Iterator[tuple[Tensor, str]]:
        """Yield the gradients, or pieces of them, that this rank updates with, and their names."""
        for group, parameters in enumerate(self.zero.params_in_partition):
            gradients = self.zero.averaged_gradients[group]
            real = (g for g in gradients if not getattr(g, "_zero_padding", False))
            yield from ((g, self.names[id(p)]) for g, p in zip(real, parameters, strict=False))

    def _norm(self) -> Tensor:
        """Return the norm over all ranks, `[]`, in fp64.

        A parameter that is whole on every rank of a tensor-parallel group counts on the first.
        """
        leads = self.ranks.rank % self.ranks.model_parallel == 0
        counted = [g for g, name in self._gradients() if leads or not self.whole[name]]
        squares = [g.double().square().sum() for g in counted]
        total = torch.stack(squares).sum() if squares else torch.zeros((), dtype=torch.float64)
        total = total.to(self.zero.device)
        dist.all_reduce(total)
        return total.sqrt()

    def drop(self) -> None:
        """Drop the gradients."""
        self.zero.zero_grad()
        self.zero.set_gradient_accumulation_boundary(False)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return fp32 copies and moments, by group or by name, and each group's updates."""
        tensors: dict[str, Tensor] = {}
        for group, part in enumerate(self._parts()):
            state = self.zero.optimizer.state.get(part, {})
            flat = {"master": part.detach(), **{k: state[k] for k in MOMENTS if k in state}}
            for key, values in flat.items():
                tensors |= self._saved(key, group, values)
        states = [self.zero.optimizer.state.get(part, {}) for part in self._parts()]
        updates = counted({str(i): s["step"] for i, s in enumerate(states) if "step" in s})
        return tensors, {"zero_updates": [updates.get(str(i), 0) for i in range(len(states))]}

    def _saved(self, key: str, group: int, values: Tensor) -> dict[str, Tensor]:
        if self.divided:
            return {f"{key}.{group}": values}
        shares = [torch.empty_like(values) for _ in range(self.ranks.data_parallel)]
        dist.all_gather(shares, values, group=self.ranks.data)
        names, sizes = self._order(group)
        pieces = torch.split(torch.cat(shares)[: sum(sizes)], sizes)
        return {f"{key}.{name}": piece for name, piece in zip(names, pieces, strict=True)}

    def resume(self, tensors: Mapping[str, Tensor], plain: Mapping[str, Any]) -> None:
        """Restore a state, also one of plain torch; the learned parameters are already restored."""
        if "zero_updates" not in plain:
            tensors = {n.replace("learned.", "master.", 1): t for n, t in tensors.items()}
        for group, part in enumerate(self._parts()):
            part.data.copy_(self._own("master", group, tensors))
            if "zero_updates" in plain:
                updates = int(plain["zero_updates"][group])
            else:  # plain torch counts by name
                updates = max(int(plain["updates"].get(n, 0)) for n in self._order(group)[0])
            if updates:
                moments = {k: self._own(k, group, tensors).to(part) for k in MOMENTS}
                step = torch.tensor(float(updates), device=part.device)
                self.zero.optimizer.state[part] = {"step": step, **moments}

    def _updated(self) -> list[Tensor]:
        """Return this rank's parts that the next step updates."""
        return [part for part in self._parts() if id(part) not in self.idle]

    def _own(self, key: str, group: int, tensors: Mapping[str, Tensor]) -> Tensor:
        """Return this rank's part of a saved state, by group or by name."""
        if f"{key}.{group}" in tensors:
            return tensors[f"{key}.{group}"]
        names, _ = self._order(group)
        width = self._parts()[group].numel()
        flat = torch.zeros(width * self.ranks.data_parallel)
        flattened = torch.cat([tensors[f"{key}.{name}"].flatten() for name in names])
        flat[: flattened.numel()] = flattened
        return flat.narrow(0, self.ranks.share * width, width).clone()

    def _parts(self) -> list[Tensor]:
        """Return this rank's part of the learned parameters, a flat fp32 tensor for each group."""
        parts: list[Tensor] = self.zero.single_partition_of_fp32_groups
        return parts

    def _order(self, group: int) -> tuple[list[str], list[int]]:
        """Return names and sizes of a group's parameters, in DeepSpeed's order."""
        parameters = self.zero.bit16_groups[group]
        return [self.names[id(p)] for p in parameters], [p.numel() for p in parameters]
