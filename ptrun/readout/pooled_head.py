"""Heads that read one vector of each row: one state, through a pooler or directly, or the mean."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from ptrun.backbone.base import BackboneInput, BackboneOutput, Positions, on_device
from ptrun.backbone.dropout import drop
from ptrun.backbone.maps.pooler import activate
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from ptrun.prompt.linear import drawn
from ptrun.readout.base import Batch, Features, Row
from ptrun.readout.head import (
    Head,
    columns,
    decoder_start,
    labelled,
    likeliest,
    read_keys,
    row_limit,
    tokens,
)
from ptrun.task.base import Task
from ptrun.types import Example, Prediction

Pooler = Literal["auto", "frozen", "trainable", "classifier", "none", "mean"]
_LEARNED = ("trainable", "classifier")
_DENSE_SITE = 1_000_002  # dropout site


class PooledHead(Head):
    """Linear(H, C) on the vector that summarizes a row.

    Args:
        backbone: of any family.
        task: the task to predict.
        pooler: `frozen` is the backbone's dense + tanh, or GELU on DeBERTa (a checkpoint without
            one, like RoBERTa's, gets an untrained one, as P-tuning v2's code does); `trainable`
            learns its own; `classifier` too, with dropout before (RoBERTa's in transformers);
            `none` reads the hidden state; `mean` reads the mean of the hidden states of all tokens,
            as sentence-embedding models do, on an encoder-decoder those of the encoder; `auto` is
            `frozen` if the checkpoint has one, else `none`.
        outputs: C; by default that of the class, or the number of labels.

    Raises:
        UserError: `pooler` is frozen, but the family has none.
    """

    reads_decoder = True
    outputs = 0

    def __init__(
        self, backbone: PretrainedBackbone, task: Task, pooler: Pooler = "auto", outputs: int = 0
    ):
        super().__init__(backbone, task, outputs or self.outputs or len(task.labels))
        if pooler == "frozen" and not backbone.architecture.pooler:
            raise UserError(
                f"readout.pooler is frozen, but {backbone.name} ({backbone.family}) has no pooler; "
                "use readout.pooler=trainable, classifier, mean or none."
            )
        self.pooler = pooler
        self.reads_decoder = pooler != "mean"
        size = backbone.shape.hidden_size
        self.dense = drawn(nn.Linear(size, size)) if pooler in _LEARNED else None

    @property
    def reads_pooler(self) -> bool:
        """Whether the backbone's pooler is read."""
        return self.pooler == "frozen" or (self.pooler == "auto" and self.backbone.has_pooler)

    def request(self, inputs: BackboneInput, at: Positions) -> BackboneInput:
        """Request pooled or plain hidden states."""
        if self.reads_pooler:
            return replace(inputs, pooled_at=at)
        return super().request(inputs, at)

    def scores(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return `[R, C]`, one for each row of the batch."""
        if self.pooler == "mean":
            output, batch = _means(output, batch)
        if self.pooler == "classifier":
            before = drop(super().read(output).float(), read_keys(batch), _DENSE_SITE, self.dropout)
            output = replace(output, hidden=before)
        return super().scores(output, batch)

    def read(self, output: BackboneOutput) -> Tensor:
        """Return the input of the linear map, `[K, H]`."""
        if output.pooled is not None:
            return output.pooled
        hidden = super().read(output)
        if self.dense is None:
            return hidden
        return activate(self.backbone.model, self.dense(hidden.float()))

    def rows(self, texts: Sequence[Sequence[str]], room: int) -> list[Row]:
        """Tokenize a column of texts, or two of pairs; in a pair the longer is shortened first.

        A row is read at the first token ([CLS]) of an encoder, at the last token of a left-to-right
        model, or at the decoder's start token of an encoder-decoder; for `mean` at all its tokens.
        """
        architecture, limit = self.backbone.architecture, row_limit(self.task, room)
        encoded = self.backbone.tokenizer()(*texts, truncation="longest_first", max_length=limit)
        rows = [Row(*tokens(encoded, i), [0]) for i in range(len(encoded["input_ids"]))]
        if self.pooler == "mean":
            return [replace(row, reads=list(range(len(row.ids)))) for row in rows]
        if architecture.has_decoder:
            return [replace(row, decoder=[decoder_start(self.backbone)]) for row in rows]
        if architecture.left_to_right:
            return [replace(row, reads=[len(row.ids) - 1]) for row in rows]
        return rows


def _means(output: BackboneOutput, batch: Batch) -> tuple[BackboneOutput, Batch]:
    """Return the mean state of each row, `[R, H]` in fp32; it is read at the row's first token.

    Rows are averaged one by one, so that a row's mean does not depend on those beside it.
    """
    assert output.hidden is not None
    parts = batch.by_row(output.hidden.float())
    means = torch.stack([states.mean(dim=0) for states in parts])
    starts = [0, *accumulate(len(states) for states in parts[:-1])]
    firsts = on_device(starts, output.hidden.device)
    reads = Positions(batch.reads.rows[firsts], batch.reads.columns[firsts])
    return replace(output, hidden=means), replace(batch, reads=reads)


class LabelHead(PooledHead):
    """One label for a text or a pair of texts."""

    def encode(self, examples: Sequence[Example], room: int) -> list[Features]:
        """Tokenize one text or a pair; the longer is shortened first."""
        rows = self.rows(columns(examples, self.task.fields), room)
        pairs = zip(examples, rows, strict=True)
        return [Features(e.id, [row], [self.target(e)]) for e, row in pairs]

    def target(self, example: Example) -> int | float:
        """Return the index of the right label."""
        return self.task.labels.index(example.target)

    def decode(self, output: BackboneOutput, batch: Batch) -> list[Prediction | Features]:
        """Return the likeliest label of each example."""
        parts = zip(batch.features, *likeliest(self.scores(output, batch)), strict=True)
        return [labelled(f.id, i, shares, self.task.labels) for f, i, shares in parts]


class NumberHead(LabelHead):
    """One number for a text or a pair: Linear(H, 1), squared error of numbers / `task.unit`."""

    outputs = 1

    @property
    def unit(self) -> float:
        """What numbers are divided by in the loss."""
        return float(getattr(self.task, "unit", 1.0))

    def target(self, example: Example) -> float:
        """Return the number itself."""
        return float(example.target)

    def loss(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return the sum of squared errors, `[]`."""
        scores, targets = self.scores(output, batch)[:, 0], batch.targets / self.unit
        return functional.mse_loss(scores, targets, reduction="sum")

    def decode(self, output: BackboneOutput, batch: Batch) -> list[Prediction | Features]:
        """Return a number for each example, on the scale of the files."""
        numbers = (self.scores(output, batch)[:, 0] * self.unit).tolist()
        return [Prediction(f.id, n) for f, n in zip(batch.features, numbers, strict=True)]
