"""Heads that read one vector a row, through a pooler or directly."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from torch import Tensor, nn
from torch.nn import functional

from ptrun.backbone.base import BackboneInput, BackboneOutput, Positions
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from ptrun.readout.base import Batch, Features
from ptrun.readout.head import Head, columns, likeliest, summed_up, texts
from ptrun.task.base import Task
from ptrun.types import Example, Prediction

Pooler = Literal["auto", "frozen", "trainable", "none"]


class PooledHead(Head):
    """Linear(H, C) on the vector a family sums a row up in.

    Args:
        backbone: of any family.
        task: what is answered.
        outputs: C.
        pooler: `frozen` is the backbone's dense + tanh (a checkpoint without one, like RoBERTa's,
            gets an untrained one, as the official P-tuning v2 code does); `trainable` learns its
            own; `none` reads the hidden state; `auto` is `frozen` where the checkpoint has one,
            else `none`.

    Raises:
        UserError: a frozen pooler is asked for of a family that has none.
    """

    reads_decoder = True

    def __init__(
        self, backbone: PretrainedBackbone, task: Task, outputs: int, pooler: Pooler = "auto"
    ):
        super().__init__(backbone, task, outputs)
        if pooler == "frozen" and not backbone.architecture.pooler:
            raise UserError(
                f"method.pooler is frozen, but {backbone.name} ({backbone.family}) has no pooler; "
                "use method.pooler=trainable or none."
            )
        self.pooler = pooler
        size = backbone.shape.hidden_size
        self.dense = nn.Linear(size, size) if pooler == "trainable" else None
        if self.dense is not None:
            nn.init.normal_(self.dense.weight, std=0.02)
            nn.init.zeros_(self.dense.bias)

    def request(self, inputs: BackboneInput, at: Positions) -> BackboneInput:
        """Request pooled or plain hidden states."""
        return replace(inputs, pooled_at=at) if self._pooled else replace(inputs, hidden_at=at)

    def read(self, output: BackboneOutput) -> Tensor:
        """Return what the head reads, `[K, H]`."""
        if output.pooled is not None:
            return output.pooled
        hidden = super().read(output)
        return hidden if self.dense is None else self.dense(hidden.float()).tanh()

    @property
    def _pooled(self) -> bool:
        return self.pooler == "frozen" or (self.pooler == "auto" and self.backbone.has_pooler)


class LabelHead(PooledHead):
    """One label for a text or a pair of texts."""

    def __init__(self, backbone: PretrainedBackbone, task: Task, pooler: Pooler = "auto"):
        super().__init__(backbone, task, len(task.labels), pooler)
        self.index = {label: index for index, label in enumerate(task.labels)}

    def encode(self, examples: Sequence[Example], room: int) -> list[Features]:
        """Tokenize one text or a pair; the longer is shortened first."""
        tokenizer = self.backbone.tokenizer()
        rows = texts(tokenizer, columns(examples, self.task.fields), self.room(room))
        return [
            Features(e.id, [summed_up(self.backbone, rows, i)], [self.target(e)])
            for i, e in enumerate(examples)
        ]

    def target(self, example: Example) -> int | float:
        """Return what the head should answer."""
        return self.index[example.target]

    def decode(self, output: BackboneOutput, batch: Batch) -> list[Prediction | Features]:
        """Return the likeliest label of each example."""
        best, sure = likeliest(self.scores(output, batch))
        answers = zip(batch.features, best, sure, strict=True)
        return [Prediction(f.id, self.task.labels[i], probability=p) for f, i, p in answers]


class NumberHead(LabelHead):
    """One number for a text or a pair: Linear(H, 1), squared error."""

    def __init__(self, backbone: PretrainedBackbone, task: Task, pooler: Pooler = "auto"):
        PooledHead.__init__(self, backbone, task, 1, pooler)

    def target(self, example: Example) -> float:
        """Return the number itself."""
        return float(example.target)

    def loss(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return the sum of squared errors, `[]`."""
        return functional.mse_loss(self.scores(output, batch)[:, 0], batch.targets, reduction="sum")

    def decode(self, output: BackboneOutput, batch: Batch) -> list[Prediction | Features]:
        """Return a number for each example."""
        numbers = self.scores(output, batch)[:, 0].tolist()
        return [Prediction(f.id, n) for f, n in zip(batch.features, numbers, strict=True)]
