"""Fact probing: the object of a fact, one word, through the language-model head (LAMA)."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional

from ptrun.backbone.base import BackboneOutput, moved
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from ptrun.prompt.pvp import PVP
from ptrun.prompt.released_query import cut_query, led
from ptrun.prompt.rendering import Piece
from ptrun.readout.base import Batch, Features, Row, word_logits
from ptrun.readout.cloze import Cloze
from ptrun.readout.head import row_limit
from ptrun.task.base import Task
from ptrun.types import Example, Prediction

_STARTS = ("Ġ", "▁")  # how byte-level and sentencepiece vocabularies write a word's start


class FactWords(Cloze):
    """The likeliest allowed word; the loss is cross-entropy over the whole vocabulary.

    Args:
        backbone, task, pvp, sentinel, literal_sep: as in `Cloze`. The task's `vocabulary` lists
            allowed words; those of one token count (P-tuning, LAMA). Without a list every token is
            allowed, and P@1 is lower than the papers'.
        shifted_label: with a left-to-right backbone, train at the position before the one that is
            read in evaluation. P-tuning's released code does so by mistake, and its last prompt
            vector learns nothing.
        released_query: lay out written templates as that code does
            (`ptrun.prompt.released_query`): with a space before the first word, and left to right
            with one before the object. By default there is neither.
    """

    def __init__(
        self,
        backbone: PretrainedBackbone,
        task: Task,
        pvp: PVP,
        *,
        sentinel: bool = True,
        literal_sep: bool = False,
        shifted_label: bool = False,
        released_query: bool = False,
    ):
        super().__init__(backbone, task, pvp, sentinel=sentinel, literal_sep=literal_sep)
        self.shifted = shifted_label and backbone.architecture.left_to_right
        self.released = released_query

    def can_answer(self, example: Example) -> bool:
        """Return whether the object is one known and allowed token."""
        token = self._token(str(example.target))
        return token is not None and (self.allowed is None or token in self._allowed_ids)

    @cached_property
    def allowed(self) -> Tensor | None:
        """The token ids of allowed words, in order; None allows all."""
        words = getattr(self.task, "vocabulary", None)
        if words is None:
            return None
        tokens = {token for word in words if (token := self._token(word)) is not None}
        if not tokens:
            raise UserError(
                f"task.vocabulary: none of its {len(words)} words is one token of backbone="
                f"{self.backbone.name};\nname another file, or type task.vocabulary=objects."
            )
        return torch.tensor(sorted(tokens))

    @cached_property
    def _allowed_ids(self) -> set[int]:
        return set() if self.allowed is None else set(self.allowed.tolist())

    def row(self, pieces: Sequence[Piece], room: int, masks: int = 1) -> Row:
        """Return the row of an example, laid out as the released code does if requested."""
        if not self.released:
            return super().row(pieces, room, masks)
        if self.backbone.architecture.fills_masks:
            return super().row(led(pieces), room, masks)
        limit = row_limit(self.task, room)
        ids = cut_query(self.encoder, self.backbone.tokenizer(), pieces, limit)
        return Row(ids, reads=[len(ids) - 1])

    def loss(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return cross-entropy summed over targets, `[]`."""
        learned = self._reads(output, batch, 0)
        return functional.cross_entropy(learned, batch.targets, reduction="sum")

    def decode(self, output: BackboneOutput, batch: Batch) -> list[Prediction | Features]:
        """Return the likeliest allowed word of each example."""
        scores = self._reads(output, batch, -1)
        best = scores.argmax(dim=-1)
        if self.allowed is not None:
            allowed = moved(self.allowed, scores.device)
            best = allowed[scores[:, allowed].argmax(dim=-1)]
        pairs = zip(batch.features, best.tolist(), strict=True)
        return [Prediction(f.id, self._word(f, token)) for f, token in pairs]

    def _reads(self, output: BackboneOutput, batch: Batch, which: int) -> Tensor:
        """Return logits `[B, V]` of a row's first read (training) or last (evaluation)."""
        logits = word_logits(output)
        return logits.view(len(batch), -1, logits.shape[-1])[:, which]

    def _features(self, example: Example, room: int) -> Features:
        row = self.row(self.pieces(example), room)
        at = row.reads[-1]
        row = replace(row, reads=[at - 1, at] if self.shifted else [at])
        token = self._token(str(example.target))
        target = -1 if token is None else token  # never trained on: see `can_answer`
        return Features(example.id, [row], [target], {"word": example.target})

    def _word(self, features: Features, token: int) -> str:
        """Return the word of a token, with `##` before a token that starts no word."""
        if token == features.targets[0]:
            return str(features.facts["word"])
        spelling = self.encoder.spelling
        written = spelling.tokens([token])[0]
        inside = spelling.style != "plain" and not written.startswith(_STARTS)
        return f"##{written}" if inside else written.lstrip("".join(_STARTS))

    def _token(self, word: str) -> int | None:
        """Return the token of a word, or None if it has several or a special one."""
        ids = self.encoder.spelling.answer(word)
        return ids[0] if len(ids) == 1 and ids[0] not in self._special else None

    @cached_property
    def _special(self) -> set[int]:
        return set(self.backbone.tokenizer().all_special_ids)
