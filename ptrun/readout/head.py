"""Linear heads on the last hidden states: one answer a row, or one a word."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from ptrun.backbone.base import BackboneInput, BackboneOutput, DecoderInput, Positions
from ptrun.backbone.dropout import drop
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from ptrun.readout.base import Batch, Features, Readout
from ptrun.task.base import Task
from ptrun.types import Example, Prediction

Pooler = Literal["auto", "frozen", "trainable", "none"]
_HEAD_SITE = 1_000_001  # dropout site, beyond any site of a backbone
_SPREAD = (
    6364136223846793005  # keys of neighbouring rows are consecutive; their reads must not meet
)


class _Head(nn.Module):
    """Dropout, then Linear(H, labels) with cross-entropy summed over targets."""

    def __init__(self, backbone: PretrainedBackbone, task: Task):
        super().__init__()
        self.backbone, self.task = [backbone], task  # a list keeps it out of the module tree
        self.dropout = backbone.shape.dropout
        self.linear = nn.Linear(backbone.shape.hidden_size, len(task.labels))
        nn.init.normal_(self.linear.weight, std=0.02)
        nn.init.zeros_(self.linear.bias)
        self.index = {label: index for index, label in enumerate(task.labels)}

    def scores(self, hidden: Tensor, batch: Batch) -> Tensor:
        """Return `[K, labels]` from `[K, H]`, in fp32."""
        kept = drop(hidden.float(), _cell_keys(batch), _HEAD_SITE, self.dropout)
        return functional.linear(kept, self.linear.weight, self.linear.bias)

    def room(self, wanted: int) -> int:
        """Return the longest row: what is left of the backbone, or the task's own limit."""
        return min(wanted, self.task.max_tokens or wanted)

    def loss(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return cross-entropy summed over targets, `[]`."""
        scores = self.scores(self.read(output), batch)
        return functional.cross_entropy(scores, batch.targets, reduction="sum")

    def best(self, output: BackboneOutput, batch: Batch) -> list[str]:
        """Return the likeliest label of each read."""
        best = self.scores(self.read(output), batch).argmax(dim=-1).tolist()
        return [self.task.labels[i] for i in best]

    def read(self, output: BackboneOutput) -> Tensor:
        """Return what the head reads, `[K, H]`."""
        assert output.hidden is not None
        return output.hidden


def _cell_keys(batch: Batch) -> Tensor | None:
    """Return a dropout key for each read: its row's, spread out by its column."""
    if batch.keys is None:
        return None
    return batch.keys[batch.reads.rows] * _SPREAD + batch.reads.columns


class LinearHead(_Head):
    """One label a row, read where the family sums a row up, through a pooler or directly.

    That is the first token ([CLS]) of an encoder, the last token of a left-to-right model, and the
    decoder's start token of an encoder-decoder.

    Args:
        backbone: of any family.
        task: a classification task.
        pooler: `frozen` is the backbone's dense + tanh (a checkpoint without one, like RoBERTa's,
            gets an untrained one, as the official P-tuning v2 code does); `trainable` learns its
            own; `none` reads the hidden state; `auto` is `frozen` where the checkpoint has one,
            else `none`.

    Raises:
        UserError: a frozen pooler is asked for of a family that has none.
    """

    reads_decoder = True

    def __init__(self, backbone: PretrainedBackbone, task: Task, pooler: Pooler = "auto"):
        super().__init__(backbone, task)
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

    def encode(self, examples: Sequence[Example], room: int) -> list[Features]:
        """Tokenize one text or a pair; the longer is shortened first."""
        tokenizer = self.backbone[0].tokenizer()
        columns = [[e.fields[field] for e in examples] for field in self.task.fields]
        rows = tokenizer(*columns, truncation="longest_first", max_length=self.room(room))
        return [self._features(example, rows, i) for i, example in enumerate(examples)]

    def ask(self, given: BackboneInput, at: Positions) -> BackboneInput:
        """Ask for pooled or plain hidden states; of an encoder-decoder, for those of its start."""
        if self._pooled:
            return replace(given, pooled_at=at)
        if self.backbone[0].family != "seq2seq":
            return replace(given, hidden_at=at)
        start = self.backbone[0].config.get("decoder_start_token_id", 0)
        ids = torch.full((len(given.mask), 1), start, device=given.mask.device)
        first = Positions(at.rows, torch.zeros_like(at.columns))
        decoder = DecoderInput(mask=torch.ones_like(ids, dtype=torch.bool), ids=ids)
        return replace(given, hidden_at=first, decoder=decoder)

    def read(self, output: BackboneOutput) -> Tensor:
        """Return what the head reads, `[K, H]`."""
        if output.pooled is not None:
            return output.pooled
        hidden = super().read(output)
        return hidden if self.dense is None else self.dense(hidden.float()).tanh()

    def decode(self, output: BackboneOutput, batch: Batch) -> list[Prediction]:
        """Return the likeliest label of each row."""
        labels = self.best(output, batch)
        return [Prediction(f.id, label) for f, label in zip(batch.features, labels, strict=True)]

    def _features(self, example: Example, rows: Any, i: int) -> Features:
        ids, types = _tokens(rows, i)
        last = len(ids) - 1 if self.backbone[0].family == "causal" else 0
        target = self.index[example.target]
        return Features(example.id, ids, types, [last], [target], size=1, parts=[0])

    @property
    def _pooled(self) -> bool:
        backbone = self.backbone[0]
        return self.pooler == "frozen" or (self.pooler == "auto" and backbone.has_pooler)


class TokenHead(_Head):
    """One label a word, read at its first sub-token; words cut off or empty are answered `O`."""

    reads_decoder = False

    def encode(self, examples: Sequence[Example], room: int) -> list[Features]:
        """Tokenize pre-split words."""
        tokenizer = self.backbone[0].tokenizer(words=True)
        words = [self._words(e, tokenizer) for e in examples]
        rows = tokenizer(
            words, is_split_into_words=True, truncation=True, max_length=self.room(room)
        )
        return [self._features(example, rows, i) for i, example in enumerate(examples)]

    def _words(self, example: Example, tokenizer: Any) -> list[str]:
        """Return the words of a sentence; a predicate is read after it, behind a border."""
        words: list[str] = example.fields[self.task.fields[0]]
        if "predicate" not in example.fields:
            return words
        border = tokenizer.sep_token or tokenizer.eos_token or "|"
        return [*words, border, example.fields["predicate"]]

    def ask(self, given: BackboneInput, at: Positions) -> BackboneInput:
        """Ask for hidden states."""
        return replace(given, hidden_at=at)

    def decode(self, output: BackboneOutput, batch: Batch) -> list[Prediction]:
        """Return a tag for each word of each row."""
        labels = iter(self.best(output, batch))
        answers = []
        for features in batch.features:
            tags = [self.task.labels[0]] * features.size
            for part in features.parts:
                tags[part] = next(labels)
            answers.append(Prediction(features.id, tags))
        return answers

    def _features(self, example: Example, rows: Any, i: int) -> Features:
        first: dict[int, int] = {}
        for position, word in enumerate(rows.word_ids(i)):
            if word is not None and word < len(example.target):  # not the predicate's copy
                first.setdefault(word, position)
        ids, types = _tokens(rows, i)
        return Features(
            id=example.id,
            ids=ids,
            types=types,
            reads=list(first.values()),
            targets=[self.index[example.target[word]] for word in first],
            size=len(example.target),
            parts=list(first),
        )


def _tokens(rows: Any, i: int) -> tuple[list[int], list[int] | None]:
    """Return ids and types of a row; an empty text of a model without marks is one token."""
    ids: list[int] = rows["input_ids"][i] or [0]
    return ids, (rows["token_type_ids"][i] or [0]) if "token_type_ids" in rows else None


def head_for(backbone: PretrainedBackbone, task: Task, pooler: Pooler) -> Readout:
    """Return the head that answers a kind of task."""
    if task.kind == "tagging":
        return TokenHead(backbone, task)
    return LinearHead(backbone, task, pooler)
