"""The base of linear heads: dropout, one linear map of hidden states, cross-entropy."""

from collections.abc import ItemsView, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from itertools import accumulate
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from ptrun.backbone.base import BackboneInput, BackboneOutput, Positions, on_device
from ptrun.backbone.dropout import drop
from ptrun.backbone.pretrained import PretrainedBackbone, activate
from ptrun.errors import UserError
from ptrun.prompt import drawn
from ptrun.readout.base import Batch, Features, Readout, TokenRow
from ptrun.readout.languages import answer_frame, tokenizer_of
from ptrun.task.dataset import Task
from ptrun.types import Example, Prediction

_HEAD_SITE = 1_000_001  # dropout site, beyond any site of a backbone
_SPREAD = 6364136223846793005  # keys of neighbouring rows are consecutive; reads must not meet


class Head(nn.Module, Readout):
    """Dropout, then Linear(H, C), in fp32; the loss is cross-entropy summed over targets."""

    reads_decoder = False
    keys: ClassVar[Set[str]] = {"dropout"}
    """The keys of `readout` that it has."""

    def __init__(self, backbone: PretrainedBackbone, task: Task, outputs: int):
        super().__init__()
        self.backbone, self.task = backbone, task
        self.dropout = backbone.shape.dropout
        self.linear = drawn(nn.Linear(backbone.shape.hidden_size, outputs))

    def scores(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return `[K, C]`, one row for each read."""
        states = drop(self.read(output).float(), read_keys(batch), _HEAD_SITE, self.dropout)
        return functional.linear(states, self.linear.weight, self.linear.bias)

    def read(self, output: BackboneOutput) -> Tensor:
        """Return the input of the linear map, `[K, H]`."""
        assert output.hidden is not None
        return output.hidden

    def loss(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return cross-entropy summed over targets, `[]`."""
        return functional.cross_entropy(self.scores(output, batch), batch.targets, reduction="sum")


def check_dropout(group: str, dropout: float | None) -> None:
    """Refuse an option of a group that is no probability below 1."""
    if dropout is not None and not 0 <= dropout < 1:
        raise UserError(f"{group}.dropout is {dropout}; use 0 or more, and less than 1.")


def read_keys(batch: Batch) -> Tensor | None:
    """Return a dropout key for each read, from its row's key and its column."""
    if batch.keys is None:
        return None
    return batch.keys[batch.reads.rows] * _SPREAD + batch.reads.columns


def row_limit(task: Task, room: int) -> int:
    """Return the most tokens of a row: the task's limit or the backbone's `room`, if smaller."""
    return min(room, task.max_tokens or room)


class Shares(Mapping[Any, float]):
    """Probabilities by label, 4 bytes each.

    Args:
        labels: all labels; an example may have the first of them alone.
        values: their probabilities `[C]`.

    >>> import torch
    >>> from ptrun.readout.head import Shares
    >>> dict(Shares(["good", "bad"], torch.tensor([0.75, 0.25])))
    {'good': 0.75, 'bad': 0.25}
    """

    def __init__(self, labels: Sequence[Any], values: Tensor):
        self._labels, self._values = labels[: len(values)], values[: len(labels)]

    def __getitem__(self, label: Any) -> float:
        """Return the probability of a label."""
        share: float = dict(self.items())[label]
        return share

    def __iter__(self) -> Iterator[Any]:
        """Yield the labels."""
        return iter(self._labels)

    def __len__(self) -> int:
        """Return the number of labels."""
        return len(self._labels)

    def items(self) -> ItemsView[Any, float]:
        """Return the labels with their probabilities; one by one this would take long."""
        return dict(zip(self._labels, self._values.tolist(), strict=True)).items()


def likeliest(scores: Tensor) -> tuple[list[int], list[float], Tensor]:
    """Return the best column of each row of `[N, C]`, its share, and the softmax `[N, C]`."""
    best, shares = scores.argmax(dim=-1), scores.log_softmax(dim=-1).exp()
    return best.tolist(), shares.gather(-1, best[:, None])[:, 0].tolist(), shares


def tokens(rows: Any, i: int) -> tuple[list[int], list[int] | None]:
    """Return ids and types of a tokenized row; an empty row becomes one token with id 0."""
    ids: list[int] = rows["input_ids"][i] or [0]
    return ids, (rows["token_type_ids"][i] or [0]) if "token_type_ids" in rows else None


def columns(examples: Sequence[Example], fields: Sequence[str]) -> list[list[str]]:
    """Return one list of texts for each field."""
    return [[e.fields[field] for e in examples] for field in fields]


Pooler = Literal["auto", "frozen", "trainable", "classifier", "none", "mean"]
_LEARNED = ("trainable", "classifier")
_DENSE_SITE = 1_000_002  # dropout site


class PooledHead(Head):
    """Linear(H, C) on the vector that summarizes a row.

    Args:
        pooler: `frozen` is the backbone's dense + tanh, or GELU on DeBERTa (a checkpoint without
            one, like RoBERTa's, gets an untrained one, as P-tuning v2's code does); `trainable`
            learns its own; `classifier` too, with dropout before (RoBERTa's in transformers);
            `none` reads the hidden state; `mean` reads the mean of the hidden states of all tokens,
            as sentence-embedding models do, on an encoder-decoder those of the encoder; `auto` is
            `frozen` if the checkpoint has one, else `none`.
        outputs: C; by default that of the class, or the number of labels.
    """

    reads_decoder = True
    keys: ClassVar[Set[str]] = {"dropout", "pooler"}
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
        if self.pooler == "mean":  # one by one: a row's mean does not depend on those beside it
            assert output.hidden is not None
            parts = batch.by_row(output.hidden.float())
            means = torch.stack([states.mean(dim=0) for states in parts])
            starts = [0, *accumulate(len(states) for states in parts[:-1])]
            firsts = on_device(starts, output.hidden.device)
            reads = Positions(batch.reads.rows[firsts], batch.reads.columns[firsts])
            output, batch = replace(output, hidden=means), replace(batch, reads=reads)
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

    def encode(self, examples: Sequence[Example], room: int) -> list[Features]:
        """Tokenize one text or a pair; the longer is shortened first."""
        rows = self.rows(columns(examples, self.task.fields), room)
        pairs = zip(examples, rows, strict=True)
        return [Features(e.id, [row], self.targets(e)) for e, row in pairs]

    def targets(self, example: Example) -> list[Any]:
        """Return what is learned of an example: the index of the right label."""
        return [self.task.labels.index(example.target)]

    def rows(self, texts: Sequence[Sequence[str]], room: int) -> list[TokenRow]:
        """Tokenize a column of texts, or two of pairs; in a pair the longer is shortened first.

        A row is read at the first token ([CLS]) of an encoder, at the last token of a left-to-right
        model, or where the decoder's answer starts in an encoder-decoder; for `mean` at all its
        tokens.
        """
        architecture, limit = self.backbone.architecture, row_limit(self.task, room)
        tokenizer = tokenizer_of(self.backbone, self.task)
        encoded = tokenizer(*texts, truncation="longest_first", max_length=limit)
        rows = [TokenRow(*tokens(encoded, i), [0]) for i in range(len(encoded["input_ids"]))]
        if self.pooler == "mean":
            return [replace(row, reads=list(range(len(row.ids)))) for row in rows]
        if architecture.has_decoder:
            begin, _ = answer_frame(self.backbone, self.task)
            return [replace(row, decoder=begin, reads=[len(begin) - 1]) for row in rows]
        if architecture.left_to_right:
            return [replace(row, reads=[len(row.ids) - 1]) for row in rows]
        return rows


class LabelHead(PooledHead):
    """One label for a text or a pair of texts.

    >>> from ptrun.testing import read
    >>> method, batch, output = read("method=prompt_tuning")
    >>> method.readout.scores(output, batch).shape  # [B, C]
    torch.Size([2, 2])
    """

    def loss(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return cross-entropy summed over targets, each by the weight of its label, `[]`."""
        if self.weights is None:
            return super().loss(output, batch)
        scores = self.scores(output, batch)
        weight = on_device(self.weights, scores.device, torch.float)
        return functional.cross_entropy(scores, batch.targets, weight, reduction="sum")

    weighed = loss
    """The loss that weighs labels; a subclass may have another one."""

    def decode(self, output: BackboneOutput, batch: Batch) -> list[Prediction | Features]:
        """Return the likeliest label of each example."""
        labels, (best, top, shares) = self.task.labels, likeliest(self.scores(output, batch))
        parts = zip(batch.features, best, top, shares.cpu(), strict=True)
        return [Prediction(f.id, labels[i], {}, p, Shares(labels, row)) for f, i, p, row in parts]


class NumberHead(LabelHead):
    """One number for a text or a pair: Linear(H, 1), squared error of numbers / `task.unit`.

    >>> from ptrun.testing import read
    >>> method, batch, output = read("method=prompt_tuning", "task=pocket_similarity")
    >>> method.readout.scores(output, batch).shape  # [B, 1]
    torch.Size([2, 1])
    """

    outputs = 1

    @property
    def unit(self) -> float:
        """What numbers are divided by in the loss."""
        return float(getattr(self.task, "unit", 1.0))

    def targets(self, example: Example) -> list[Any]:
        """Return the number itself."""
        return [float(example.target)]

    def loss(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return the sum of squared errors, `[]`."""
        scores, targets = self.scores(output, batch)[:, 0], batch.targets / self.unit
        return functional.mse_loss(scores, targets, reduction="sum")

    def decode(self, output: BackboneOutput, batch: Batch) -> list[Prediction | Features]:
        """Return a number for each example, on the scale of the files."""
        numbers = (self.scores(output, batch)[:, 0] * self.unit).tolist()
        return [Prediction(f.id, n) for f, n in zip(batch.features, numbers, strict=True)]
