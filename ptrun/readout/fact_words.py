"""Fact probing: the object of a fact, one word, through the language-model head (LAMA)."""

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional

from ptrun.backbone.base import BackboneOutput
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.prompt.pvp import PVP
from ptrun.readout.base import Batch, Features, Row
from ptrun.readout.cloze import Cloze
from ptrun.task.base import Task
from ptrun.types import Example, Prediction


class FactWords(Cloze):
    """Cross-entropy over the whole vocabulary; the answer is the likeliest allowed word.

    Args:
        backbone, task, pvp, sentinel: as in `Cloze`. The task's `vocabulary` lists allowed words,
            those of one token count; none allows every token.
        shifted_label: of a left-to-right backbone, learn at the position before the one that
            answers, as P-tuning's released code does by mistake; its last prompt vector then learns
            nothing. Default false.
    """

    def __init__(
        self,
        backbone: PretrainedBackbone,
        task: Task,
        pvp: PVP,
        *,
        sentinel: bool = True,
        shifted_label: bool = False,
    ):
        super().__init__(backbone, task, pvp, sentinel=sentinel)
        self.shifted = shifted_label and backbone.family == "causal"

    def can_answer(self, example: Example) -> bool:
        """Return whether the object is one known token, and an allowed one."""
        token = self._token(example.target)
        return token is not None and (self.allowed is None or token in self._allowed)

    @cached_property
    def allowed(self) -> Tensor | None:
        """The tokens an answer may be, in order; None is all."""
        words = getattr(self.task, "vocabulary", None)
        if words is None:
            return None
        found = {self._token(word) for word in words}
        return torch.tensor(sorted(token for token in found if token is not None))

    @cached_property
    def _allowed(self) -> frozenset[int]:
        return frozenset(() if self.allowed is None else self.allowed.tolist())

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
        target = (self.encoder.spelling.answer(example.target) or [0])[0]
        return Features(example.id, [row], [target], {"word": example.target})

    def _word(self, features: Features, token: int) -> str:
        """Return the word of a token; another token than the object's never reads as the object."""
        gold = str(features.facts["word"])
        if token == features.targets[0]:
            return gold
        written = self.encoder.spelling.tokens([token])[0]
        word = written.lstrip("Ġ▁")
        return f"other token: {written}" if word == gold else word

    def _token(self, word: str) -> int | None:
        """Return the token that is the word, or None: it has several, or is unknown."""
        ids = self.encoder.spelling.answer(word)
        known = len(ids) == 1 and ids[0] != self.backbone.tokenizer().unk_token_id
        return ids[0] if known else None
