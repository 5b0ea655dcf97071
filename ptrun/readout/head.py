"""The base of linear heads: dropout, one linear map of hidden states, cross-entropy."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from ptrun.backbone.base import BackboneInput, BackboneOutput, Positions
from ptrun.backbone.dropout import drop
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from ptrun.prompt.linear import drawn
from ptrun.readout.base import Batch, Readout
from ptrun.task.base import Task
from ptrun.types import Example, Prediction

_HEAD_SITE = 1_000_001  # dropout site, beyond any site of a backbone
_SPREAD = 6364136223846793005  # keys of neighbouring rows are consecutive; reads must not meet


class Head(nn.Module, Readout):
    """Dropout, then Linear(H, C), in fp32; the loss is cross-entropy summed over targets.

    Args:
        backbone: of any family.
        task: the task to predict.
        outputs: C.
    """

    reads_decoder = False

    def __init__(self, backbone: PretrainedBackbone, task: Task, outputs: int):
        super().__init__()
        self._backbone, self.task = [backbone], task  # a list keeps it out of the module tree
        self.dropout = backbone.shape.dropout
        self.linear = drawn(nn.Linear(backbone.shape.hidden_size, outputs))

    @property
    def backbone(self) -> PretrainedBackbone:
        """The backbone whose states are read."""
        return self._backbone[0]

    def request(self, inputs: BackboneInput, at: Positions) -> BackboneInput:
        """Request hidden states."""
        return replace(inputs, hidden_at=at)

    def scores(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return `[K, C]`, one row for each read."""
        kept = drop(self.read(output).float(), read_keys(batch), _HEAD_SITE, self.dropout)
        return functional.linear(kept, self.linear.weight, self.linear.bias)

    def read(self, output: BackboneOutput) -> Tensor:
        """Return the input of the linear map, `[K, H]`."""
        assert output.hidden is not None
        return output.hidden

    def loss(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return cross-entropy summed over targets, `[]`."""
        return functional.cross_entropy(self.scores(output, batch), batch.targets, reduction="sum")


def read_keys(batch: Batch) -> Tensor | None:
    """Return a dropout key for each read, from its row's key and its column."""
    if batch.keys is None:
        return None
    return batch.keys[batch.reads.rows] * _SPREAD + batch.reads.columns


def row_limit(task: Task, room: int) -> int:
    """Return the most tokens of a row: the task's limit or the backbone's `room`, if smaller."""
    return min(room, task.max_tokens or room)


def likeliest(scores: Tensor) -> tuple[list[int], list[list[float]]]:
    """Return the best column of each row of `[N, C]`, and the softmax of the row."""
    return scores.argmax(dim=-1).tolist(), scores.log_softmax(dim=-1).exp().tolist()


def labelled(name: str, best: int, shares: Sequence[float], labels: Sequence[Any]) -> Prediction:
    """Return the prediction of a label with the probabilities `[C]` of all labels."""
    every = dict(zip(labels, shares, strict=True))
    return Prediction(name, labels[best], probability=shares[best], probabilities=every)


def tokens(rows: Any, i: int) -> tuple[list[int], list[int] | None]:
    """Return ids and types of a tokenized row; an empty row becomes one token with id 0."""
    ids: list[int] = rows["input_ids"][i] or [0]
    return ids, (rows["token_type_ids"][i] or [0]) if "token_type_ids" in rows else None


def decoder_start(backbone: PretrainedBackbone) -> int:
    """Return the first token of the decoder, or of the text written in a blank.

    Raises:
        UserError: a blank infiller's configuration lacks it; the T5 family starts with 0.
    """
    start = backbone.config.get("decoder_start_token_id")
    if start is None and backbone.architecture.has_blank:
        raise UserError(
            f"backbone={backbone.name}: its config.json has no decoder_start_token_id; add it: the "
            "id of <|startofpiece|>, after which it writes."
        )
    return int(start or 0)


def columns(examples: Sequence[Example], fields: Sequence[str]) -> list[list[str]]:
    """Return one list of texts for each field."""
    return [[e.fields[field] for e in examples] for field in fields]
