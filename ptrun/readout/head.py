"""What linear heads share: dropout, one linear map of hidden states, cross-entropy."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from ptrun.backbone.base import BackboneInput, BackboneOutput, Positions
from ptrun.backbone.dropout import drop
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from ptrun.readout.base import Batch, Row
from ptrun.task.base import Task
from ptrun.types import Example

_HEAD_SITE = 1_000_001  # dropout site, beyond any site of a backbone
_SPREAD = 6364136223846793005  # keys of neighbouring rows are consecutive; reads must not meet


class Head(nn.Module):
    """Dropout, then Linear(H, C), in fp32; the loss is cross-entropy summed over targets.

    Args:
        backbone: of any family.
        task: what is answered.
        outputs: C.
    """

    reads_decoder = False

    def __init__(self, backbone: PretrainedBackbone, task: Task, outputs: int):
        super().__init__()
        self._backbone, self.task = [backbone], task  # a list keeps it out of the module tree
        self.dropout = backbone.shape.dropout
        self.linear = nn.Linear(backbone.shape.hidden_size, outputs)
        nn.init.normal_(self.linear.weight, std=0.02)
        nn.init.zeros_(self.linear.bias)

    @property
    def backbone(self) -> PretrainedBackbone:
        """The backbone that is read."""
        return self._backbone[0]

    def request(self, inputs: BackboneInput, at: Positions) -> BackboneInput:
        """Request hidden states."""
        return replace(inputs, hidden_at=at)

    def scores(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return `[K, C]`, one row a read."""
        kept = drop(self.read(output).float(), _read_keys(batch), _HEAD_SITE, self.dropout)
        return functional.linear(kept, self.linear.weight, self.linear.bias)

    def read(self, output: BackboneOutput) -> Tensor:
        """Return what the head reads, `[K, H]`."""
        assert output.hidden is not None
        return output.hidden

    def loss(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return cross-entropy summed over targets, `[]`."""
        return functional.cross_entropy(self.scores(output, batch), batch.targets, reduction="sum")

    def room(self, wanted: int) -> int:
        """Return the longest row: what is left of the backbone, or the task's own limit."""
        return min(wanted, self.task.max_tokens or wanted)


def _read_keys(batch: Batch) -> Tensor | None:
    """Return a dropout key for each read: its row's, spread out by its column."""
    if batch.keys is None:
        return None
    return batch.keys[batch.reads.rows] * _SPREAD + batch.reads.columns


def likeliest(scores: Tensor) -> tuple[list[int], list[float]]:
    """Return the best column of each row of `[N, C]`, and its share in their softmax."""
    best = scores.argmax(dim=-1)
    shares = scores.log_softmax(dim=-1).gather(-1, best[:, None])[:, 0].exp()
    return best.tolist(), shares.tolist()


def texts(tokenizer: Any, columns: Sequence[Sequence[str]], room: int) -> Any:
    """Tokenize texts or pairs of texts; of a pair the longer is shortened first."""
    return tokenizer(*columns, truncation="longest_first", max_length=room)


def tokens(rows: Any, i: int) -> tuple[list[int], list[int] | None]:
    """Return ids and types of a row; an empty text of a model without marks is one token."""
    ids: list[int] = rows["input_ids"][i] or [0]
    return ids, (rows["token_type_ids"][i] or [0]) if "token_type_ids" in rows else None


def summed_up(backbone: PretrainedBackbone, rows: Any, i: int) -> Row:
    """Return a row read where the family sums a text up.

    That is the first token ([CLS]) of an encoder, the last token of a left-to-right model, and the
    decoder's start token of an encoder-decoder.
    """
    ids, types = tokens(rows, i)
    if backbone.family == "seq2seq":
        return Row(ids, types, [0], decoder=[decoder_start(backbone)])
    return Row(ids, types, [len(ids) - 1 if backbone.family == "causal" else 0])


def decoder_start(backbone: PretrainedBackbone) -> int:
    """Return the token a decoder begins with, or what is written in a blank.

    Raises:
        UserError: a blank infiller does not say; the T5 family begins with 0.
    """
    start = backbone.config.get("decoder_start_token_id")
    if start is None and backbone.family == "infilling":
        raise UserError(
            f"backbone={backbone.name}: its config.json has no decoder_start_token_id; add it: the "
            "id of <|startofpiece|>, after which it writes."
        )
    return int(start or 0)


def columns(examples: Sequence[Example], fields: Sequence[str]) -> list[list[str]]:
    """Return one column of texts a field."""
    return [[e.fields[field] for e in examples] for field in fields]
