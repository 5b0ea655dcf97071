"""Multi-task prompt tuning: a prompt that tasks share, and a rank-one matrix for each of them.

Wang et al. 2023, §3: the prompt of task k is P_k = P* ∘ (u_k v_kᵀ), with P* `[P, E]` shared. On
several tasks P* and all u and v are learned; then `start=run:` starts one task from P* and the mean
of the u and v. With `start=joined:RUN+RUN+...`, a run of `prompt_tuning` for each task, these are
teachers: λ times the mean squared difference of the states that the read-out reads joins the loss.

Departs from the paper and its code:
- States are compared where the read-out reads, not at all positions, and logits are not compared:
  each task has a head of its own here, as has its teacher. Teachers have no dropout.
- A batch has one task, and an epoch has each example once. The paper draws the tasks of a batch.
- u and v start at 1, so that P_k starts at P*. PEFT draws them from N(0, 0.02²).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ptrun.backbone.base import BackboneOutput, moved, on_device
from ptrun.errors import UserError
from ptrun.folder import result
from ptrun.method.base import rates
from ptrun.method.prompt_tuning import PromptTuning
from ptrun.readout.base import Batch, Features


class MultitaskPrompt(PromptTuning):
    """A soft prompt for each of K tasks, made of a shared one, and a read-out.

    Args:
        length: P, in vectors.
        task_lr: learning rate of u and v; None is `train.lr`.
        distillation: the weight λ of the distance from the teachers' states.

    >>> from ptrun.testing import read
    >>> options = "readout.pooler=none", "task=pocket_multi"
    >>> method, batch, output = read("method=multitask_prompt", *options)
    >>> method.prompt.u.shape, method.vectors(batch).shape  # [K, P], [B, P, E]
    (torch.Size([4, 20]), torch.Size([2, 20, 128]))
    """

    may_differ = ("length", "task_lr", "distillation")
    prompt: Any

    def __init__(
        self, *run: Any, length: int, task_lr: float | None = None, distillation: float = 0.9
    ):
        super().__init__(*run, length=length)
        if distillation < 0:
            raise UserError(f"method.distillation is {distillation}; use 0 or more.")
        self.tasks = list(getattr(self.task, "tasks", [self.task.name]))
        width = self.backbone.shape.embedding_size
        self.prompt.u = nn.Parameter(torch.ones(len(self.tasks), length))
        self.prompt.v = nn.Parameter(torch.ones(len(self.tasks), width))
        self.rates = rates("task_lr", task_lr, "prompt.u", "prompt.v")
        self.distillation = distillation
        self.teachers, self.states = dict[str, Tensor](), dict[str, Tensor]()

    @property
    def replays(self) -> bool:
        """False with several tasks, which are told apart on the host."""
        return super().replays and len(self.tasks) == 1

    def of(self, tasks: int | Tensor) -> Tensor:
        """Return the prompt of a task, `[P, E]`, or those of tasks `[B]`, `[B, P, E]`."""
        u, v = self.prompt.u[tasks], self.prompt.v[tasks]
        prompts: Tensor = self.prompt.table * u[..., None] * v[..., None, :]
        return prompts

    def vectors(self, batch: Batch) -> Tensor:
        """Return the prompt of each row's task, `[B, P, E]`."""
        if len(self.tasks) == 1:
            return self.of(0).expand(len(batch), -1, -1)
        places = [self.tasks.index(name) for name in self._rows(batch)]
        return self.of(on_device(places, batch.ids.device))

    def _rows(self, batch: Batch) -> list[str]:  # the task of each
        return [f.facts.get("set", self.tasks[0]) for f in batch.features for _ in f.rows]

    def unfolded(self, exported: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return the tensors to start from: of one task the mean of all u and v."""
        scales = [n for n in ("prompt.u", "prompt.v") if n in exported and len(self.tasks) == 1]
        return {**exported, **{n: exported[n].mean(0, keepdim=True) for n in scales}}

    def join(self, runs: Sequence[tuple[Path, Mapping[str, Tensor]]]) -> None:
        """Learn from the prompts of runs of `prompt_tuning`, one for each task."""
        shapes = {"prompt.table": self.prompt.table.shape}
        for folder, tensors in runs:
            done = result.read(folder)
            if done and {name: tensor.shape for name, tensor in tensors.items()} == shapes:
                self.teachers[done.names["task"]] = tensors["prompt.table"]
        if len(runs) != len(self.tasks) or {*self.teachers} != {*self.tasks}:
            raise UserError(
                f"start=joined: give one run of prompt_tuning with method.length={self.length} for "
                f"each of {', '.join(self.tasks)}, and no other."
            )

    def unprepared(self, features: Sequence[Features], *, training: bool) -> Sequence[Features]:
        """Return the training examples whose teacher's states are not computed yet."""
        taught = features if training and self.teachers else ()
        return [f for f in taught if f.id not in self.states]

    @torch.no_grad()
    def prepare(self, batch: Batch) -> None:
        """Compute and keep what the read-out reads with the teachers' prompts."""
        vectors = torch.stack([self.teachers[name] for name in self._rows(batch)])
        output = self.backbone.forward(self.prompted(batch, vectors.to(batch.ids.device)))
        states = batch.by_example(output.tensors[0].cpu())
        self.states |= {f.id: state for f, state in zip(batch.features, states, strict=True)}

    def loss(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return the loss, in training with λ times the distance from the teachers' states."""
        loss = super().loss(output, batch)
        if not self.teachers or batch.keys is None:
            return loss
        read, taught = output.tensors[0], torch.cat([self.states[f.id] for f in batch.features])
        apart = (read.float() - moved(taught, read.device).float()).square().mean()
        return loss + self.distillation * len(batch.targets) * apart
