"""Fact probing: the object of a fact, one word, through the language-model head (LAMA)."""

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional

from ptrun.backbone.base import BackboneOutput
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from ptrun.prompt.pvp import PVP
from ptrun.prompt.rendering import Piece
from ptrun.readout.base import Batch, Features, Row
from ptrun.readout.cloze import Cloze
from ptrun.readout.released_query import ReleasedQuery
from ptrun.task.base import Task
from ptrun.types import Example, Prediction

_STARTS = ("Ġ", "▁")  # how byte-level and sentencepiece vocabularies write a word's start


class FactWords(Cloze):
    """Cross-entropy over the whole vocabulary; the answer is the likeliest allowed word.

    Args:
        backbone, task, pvp, sentinel: as in `Cloze`. The task's `vocabulary` lists allowed words,
            of which those of one token count (P-tuning, LAMA); without a list every token is
            allowed, and P@1 is lower than the papers'.
        shifted_label: of a left-to-right backbone, learn at the position before the one that
            answers, as P-tuning's released code does by mistake; its last prompt vector then learns
            nothing. Default false.
        released_query: of a left-to-right backbone, ask as that code asks with written templates
            (`ptrun.readout.released_query`): a space before the object and, with Megatron-11B's
            tokenizer, `<s>` and `</s>` around the text. Default false: the text before the object.
    """

    def __init__(
        self,
        backbone: PretrainedBackbone,
        task: Task,
        pvp: PVP,
        *,
        sentinel: bool = True,
        shifted_label: bool = False,
        released_query: bool = False,
    ):
        super().__init__(backbone, task, pvp, sentinel=sentinel)
        self.shifted = shifted_label and backbone.family == "causal"
        self.released = released_query

    def can_answer(self, example: Example) -> bool:
        """Return whether the object is one known token, and an allowed one."""
        token = self._token(str(example.target))
        return token is not None and (self._known is None or token in self._known)

    @cached_property
    def allowed(self) -> Tensor | None:
        """The tokens an answer may be, in order; None is all."""
        words = getattr(self.task, "vocabulary", None)
        if words is None:
            return None
        tokens = {self._token(word) for word in words} - {None}
        if not tokens:
            raise UserError(
                f"task.vocabulary: none of its {len(words)} words is one token of backbone="
                f"{self.backbone.name};\nname another file, or type task.vocabulary=objects."
            )
        return torch.tensor(sorted(token for token in tokens if token is not None))

    @cached_property
    def _known(self) -> set[int] | None:
        return None if self.allowed is None else set(self.allowed.tolist())

    @cached_property
    def _query(self) -> ReleasedQuery:
        return ReleasedQuery(self.encoder, self.backbone.tokenizer())

    def row(self, pieces: Sequence[Piece], room: int, masks: int = 1) -> Row:
        """Return the row of an example: of a written pattern, or as the released code has it."""
        if self.released:
            return self._query.row(pieces, self.room(room))
        return super().row(pieces, room, masks)

    def encode(self, examples: Sequence[Example], room: int) -> list[Features]:
        """Return one row an example."""
        return [self._features(example, room) for example in examples]

    def loss(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return cross-entropy summed over targets, `[]`."""
        learned = self._reads(output, batch, 0)
        return functional.cross_entropy(learned, batch.targets, reduction="sum")

    def decode(self, output: BackboneOutput, batch: Batch) -> list[Prediction | Features]:
        """Return the likeliest allowed word of each example."""
        scores = self._reads(output, batch, -1)
        best = scores.argmax(dim=-1)
        if self.allowed is not None:
            allowed = self.allowed.to(scores.device)
            best = allowed[scores[:, allowed].argmax(dim=-1)]
        pairs = zip(batch.features, best.tolist(), strict=True)
        return [Prediction(f.id, self._word(f, token)) for f, token in pairs]

    def _reads(self, output: BackboneOutput, batch: Batch, which: int) -> Tensor:
        """Return logits `[B, V]`: of a row's first read, which learns, or last, which answers."""
        assert output.logits is not None
        reads = output.logits.float().view(len(batch), -1, output.logits.shape[-1])
        return reads[:, which]

    def _features(self, example: Example, room: int) -> Features:
        made = self.row(self.pieces(example), room)
        answer = made.reads[-1]
        reads = [answer - 1, answer] if self.shifted else [answer]
        row = Row(made.ids, made.types, reads, made.softs, made.decoder)
        token = self._token(str(example.target))
        target = -1 if token is None else token  # never learned from: `can_answer` leaves it out
        return Features(example.id, [row], [target], {"word": example.target})

    def _word(self, features: Features, token: int) -> str:
        """Return the word of a token; `##` before one that begins no word, in any tokenizer."""
        if token == features.targets[0]:
            return str(features.facts["word"])
        spelling = self.encoder.spelling
        written = spelling.tokens([token])[0]
        inside = spelling.style != "plain" and not written.startswith(_STARTS)
        return f"##{written}" if inside else written.lstrip("".join(_STARTS))

    def _token(self, word: str) -> int | None:
        """Return the token of a word; None if it has several, or is unknown."""
        ids = self.encoder.spelling.answer(word)
        return ids[0] if len(ids) == 1 and ids[0] not in self._special else None

    @cached_property
    def _special(self) -> set[int]:
        return set(self.backbone.tokenizer().all_special_ids)
