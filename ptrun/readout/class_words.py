"""Class words written after the text, scored by ELECTRA's replaced-token head (DPT).

    [CLS] a dull film Class: negative, positive. [SEP]

Yao et al. 2022, §3: the pre-trained head scores every class word, z at its first token; it adds no
parameters. Large z means "replaced", so the score of a class is 1 - sigma(z). The released code
differs in three ways, each an option: a bias for each class, the mean over classes in the loss
instead of the sum, and reserved tokens instead of the class words (`method.reserved`).
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from ptrun.backbone.base import BackboneOutput, on_device
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from ptrun.pattern.pattern import PVP
from ptrun.pattern.rendering import Piece
from ptrun.pattern.verbalizer import LabelTokens, Verbalizer
from ptrun.readout.base import Batch, Features, TokenRow, word_logits
from ptrun.readout.cloze import Cloze
from ptrun.readout.head import row_limit
from ptrun.task.dataset import Task
from ptrun.types import Example, Prediction

Direction = Literal["one_minus_sigma", "sigma"]
_FIRST = 100  # where the released code's reserved tokens begin


class ClassWords(nn.Module, Cloze):
    """The class whose word ELECTRA's head scores as the most original; all are written out.

    >>> from ptrun.testing import read
    >>> method, batch, output = read("method=dpt", "backbone=pocket_electra")
    >>> method.readout.odds(output, batch).shape  # [B, classes]
    torch.Size([2, 2])
    """

    def __init__(self, backbone: PretrainedBackbone, task: Task, pvp: PVP, options: Any):
        nn.Module.__init__(self)
        Cloze.__init__(self, backbone, task, pvp, options)
        self.bias = nn.Parameter(torch.zeros(len(self.labels))) if options.bias else None
        self.reserved = False

    @property
    def labels(self) -> Sequence[str]:
        """The classes, in order."""
        return tuple(self.pvp.words or ())

    def first_words(self) -> Verbalizer | None:
        """Return the class words."""
        return self.pvp.verbalizer() if self.pvp.words else None

    def encode(self, examples: Sequence[Example], room: int) -> list[Features]:
        """Return one row of one segment for each example, read where each class word starts."""
        assert self.tokens
        return super().encode(examples, row_limit(self.task, room))

    def loss(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return binary cross-entropy summed over targets, one for each class, `[]`.

        The engine divides by their number: with `share: sum` the loss is n times as large.
        """
        odds = self.odds(output, batch)
        right, weight = batch.targets.view_as(odds).float(), None
        if self.weights is not None:
            each = on_device(self.weights, odds.device, torch.float)
            weight = (right @ each)[:, None]  # of the right class, for all terms of a row
        total = functional.binary_cross_entropy_with_logits(odds, right, weight, reduction="sum")
        return total * (len(self.labels) if self.options.loss == "sum" else 1)

    def decode(self, output: BackboneOutput, batch: Batch) -> list[Prediction | Features]:
        """Return the class of each example with the highest score."""
        best = self.odds(output, batch).argmax(dim=-1).tolist()
        return [Prediction(f.id, self.labels[i]) for f, i in zip(batch.features, best, strict=True)]

    def odds(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return the log-odds `[B, n]` that a class is right: a score is their sigmoid."""
        z = word_logits(output).view(len(batch), -1)
        if self.bias is not None:
            z = z + self.bias
        return z if self.options.direction == "sigma" else -z

    @cached_property
    def tokens(self) -> LabelTokens:
        """The class words as token ids; unknown and equal words are refused."""
        assert self.pvp.words is not None
        return Verbalizer(self.pvp.words, "mean").bind(self.backbone.tokenizer())

    @cached_property
    def written(self) -> list[int]:
        """The tokens of the class words, and the text between and after them."""
        row = self._bare
        return row.ids[row.reads[0] : -1]

    @cached_property
    def stand_ins(self) -> list[int]:
        """A reserved token for each of `written`.

        The released code counts from 100 plus the number of the pattern's tokens before them.
        """
        row, tokenizer, count = self._bare, self.backbone.tokenizer(), len(self.written)
        frame = (tokenizer.cls_token_id, tokenizer.sep_token_id)
        first = _FIRST + sum(token not in frame for token in row.ids[: row.reads[0]])
        ids = tokenizer.convert_tokens_to_ids([f"[unused{first + i}]" for i in range(count)])
        reserved = [i for i in ids if i not in (None, tokenizer.unk_token_id)]
        if len(reserved) < count:
            raise UserError(
                f"method.reserved=true: the classes of task={self.task.name} need the {count} "
                f"reserved tokens from [unused{first}] on, and backbone={self.backbone.name} has "
                f"{len(reserved)}; use method.reserved=false."
            )
        return reserved

    @property
    def _bare(self) -> TokenRow:
        """The row without text."""
        fields = dict.fromkeys(self.pvp.pattern.fields, "")
        return self._row(self.pvp.render(fields), self.backbone.shape.positions)

    def _row(self, pieces: Sequence[Piece], room: int) -> TokenRow:
        """Return the row of pieces, read where each class begins."""
        row = self.encoder.encode(pieces, room)
        return TokenRow(row.ids, None, row.items, row.softs)

    def _features(self, example: Example, room: int) -> Features:
        row = self._row(self.pieces(example), room)
        if self.reserved:
            row = replace(row, ids=[*row.ids[: row.reads[0]], *self.stand_ins, row.ids[-1]])
        targets = [int(label == example.target) for label in self.labels]
        return Features(example.id, [row], targets)
