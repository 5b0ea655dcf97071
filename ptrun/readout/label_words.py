"""A verbalizer: label words, or the letters of options, read through the language-model head."""

from dataclasses import replace
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from ptrun.backbone.base import BackboneOutput
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from ptrun.prompt.pvp import PVP
from ptrun.prompt.spelling import mask_ids
from ptrun.prompt.verbalizer import LabelTokens
from ptrun.readout.base import Batch, Features, Row, word_logits
from ptrun.readout.cloze import Cloze
from ptrun.readout.head import likeliest
from ptrun.task.base import Task
from ptrun.types import Example, Prediction

Among = Literal["labels", "vocabulary"]
_MOST_OPTIONS = 16


class LabelWords(Cloze):
    """The label whose words are likeliest at the mask.

    Args:
        backbone, task, pvp, sentinel: as in `Cloze`.
        among: `labels` is a softmax over label scores (PET, P-tuning). `vocabulary` is a softmax
            over all words, in the loss and in the prediction (PPT §2): a word of no label is a
            wrong prediction, and an encoder-decoder also learns to repeat the sentinel, with equal
            weight.
        closed: whether an encoder-decoder among the vocabulary also learns to end its answer with
            the next sentinel, with equal weight. PPT's pre-training targets are closed, those of
            its tasks are not.
    """

    def __init__(
        self,
        backbone: PretrainedBackbone,
        task: Task,
        pvp: PVP,
        *,
        among: Among = "labels",
        sentinel: bool = True,
        closed: bool = False,
    ):
        super().__init__(backbone, task, pvp, sentinel=sentinel)
        self.among, self.closed = among, closed

    @cached_property
    def tokens(self) -> LabelTokens:
        """The label words as token ids.

        Raises:
            UserError: the vocabulary lacks one; the error names the task's other patterns.
        """
        verbalizer = self.pvp.verbalizer(_MOST_OPTIONS)
        assert verbalizer is not None
        try:
            return verbalizer.bind(self.backbone.tokenizer())
        except UserError as error:
            others = ", ".join(name for name in self.task.pvps if name != self.pvp.name)
            also = f"\nOr another method.pattern: {others}." if others else ""
            raise UserError(f"pattern {self.pvp.name}: {error}{also}") from error

    def loss(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return cross-entropy summed over targets, `[]`."""
        scores = self._scores(output, batch)
        return functional.cross_entropy(scores, batch.targets, reduction="sum")

    def decode(self, output: BackboneOutput, batch: Batch) -> list[Prediction | Features]:
        """Return the likeliest label of each example."""
        scores = self._scores(output, batch)[self._before :: self._before + 1 + self.closed]
        parts = zip(batch.features, *likeliest(scores), strict=True)
        return [Prediction(f.id, self._label(f, best), probability=p) for f, best, p in parts]

    @property
    def _before(self) -> int:
        """The number of reads before the answer's: one if the sentinel is a target, else none."""
        return int(self.among == "vocabulary" and self.marked)

    def _features(self, example: Example, room: int) -> Features:
        row = self.row(self.pieces(example), room, self.tokens.masks)
        if self.decodes:
            row = replace(row, reads=row.reads[len(row.reads) - 1 - self._before :])
        label = self.tokens.labels.index(str(example.target))
        options = len(example.fields.get("options", ())) if self.pvp.words is None else 0
        targets = self._targets(row, label)
        if self.closed:
            row, targets = self._close(row, targets)
        return Features(example.id, [row], targets, {"options": options})

    def _targets(self, row: Row, label: int) -> list[int]:
        if self.among == "labels":
            return [label]
        sentinel = row.decoder[-1:] if row.decoder and self._before else []
        return [*sentinel, self.tokens.ids[label][0][0]]

    def _close(self, row: Row, targets: list[int]) -> tuple[Row, list[int]]:
        """Append the answer to the decoder's input, unseen by earlier positions, and its end."""
        assert row.decoder is not None
        decoder, reads = [*row.decoder, targets[-1]], [*row.reads, row.reads[-1] + 1]
        (_, end), _ = mask_ids(self.backbone.tokenizer(), 2)
        return replace(row, decoder=decoder, reads=reads), [*targets, end]

    def _scores(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return `[N, C]` scores of labels or `[N, V]` of words, one row for each target."""
        if self.among == "vocabulary":
            return word_logits(output)
        assert output.logits is not None
        reads = len(batch.rows[0].reads)
        scores = self.tokens.scores(output.logits.view(len(batch), reads, -1))
        counts = [f.facts["options"] or scores.shape[1] for f in batch.features]
        places = torch.arange(scores.shape[1], device=scores.device)
        absent = places >= torch.tensor(counts, device=scores.device)[:, None]
        return scores.masked_fill(absent, -torch.inf)

    def _label(self, features: Features, best: int) -> int | str:
        """Return the label of an index or token; a token of no label becomes a wrong label."""
        options = features.facts["options"]
        if self.among == "vocabulary":
            label = self._owners.get(best)
            if label is None:
                return -1 if options else self._stray(best)
            best = label
        return best if options else self.tokens.labels[best]

    @cached_property
    def _owners(self) -> dict[int, int]:
        """The label of each label word's token."""
        return {word[0]: i for i, words in enumerate(self.tokens.ids) for word in words}

    def _stray(self, token: int) -> str:
        """Return a word of no label, changed if it equals the name of a label."""
        word = self.encoder.spelling.tokens([token])[0]
        return f"other word: {word}" if word in self.tokens.labels else word
