"""A verbalizer: label words, or the letters of options, read through the language-model head."""

from dataclasses import replace
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from ptrun.backbone.base import BackboneOutput, on_device
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from ptrun.prompt.pvp import PVP
from ptrun.prompt.spelling import mask_ids
from ptrun.prompt.verbalizer import LabelTokens
from ptrun.readout.base import Batch, Features, Row, word_logits
from ptrun.readout.cloze import Cloze
from ptrun.task.base import Task
from ptrun.types import Example, Prediction

Among = Literal["labels", "vocabulary"]
_MOST_OPTIONS = 16


class LabelWords(Cloze):
    """The label whose words are likeliest at the mask.

    Args:
        backbone, task, pvp, sentinel, literal_sep: as in `Cloze`.
        among: `labels` is a softmax over label scores (PET, P-tuning); `vocabulary` is one over all
            words, in training and evaluation (PPT §2). A word of no label is a wrong prediction,
            and an encoder-decoder also learns to repeat the sentinel, with equal weight.
        closed: with `vocabulary`, whether an encoder-decoder also learns to end its answer with the
            next sentinel, with equal weight. PPT does so in pre-training only.
    """

    def __init__(
        self,
        backbone: PretrainedBackbone,
        task: Task,
        pvp: PVP,
        *,
        among: Among = "labels",
        sentinel: bool = True,
        literal_sep: bool = False,
        closed: bool = False,
    ):
        super().__init__(backbone, task, pvp, sentinel=sentinel, literal_sep=literal_sep)
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
            also = f"\nOr another readout.pattern: {others}." if others else ""
            raise UserError(f"pattern {self.pvp.name}: {error}{also}") from error

    def loss(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return cross-entropy summed over targets, `[]`."""
        scores = self._scores(output, batch)
        return functional.cross_entropy(scores, batch.targets, reduction="sum")

    def decode(self, output: BackboneOutput, batch: Batch) -> list[Prediction | Features]:
        """Return the likeliest label of each example."""
        scores = self._scores(output, batch)[self._before :: self._before + 1 + self.closed]
        best, shares = scores.argmax(dim=-1), scores.log_softmax(dim=-1).exp()
        own = shares.gather(-1, best[:, None])[:, 0].tolist()
        parts = zip(batch.features, best.tolist(), own, self._by_label(shares), strict=True)
        return [
            Prediction(f.id, self._label(f, place), {}, share, self._named(f, every))
            for f, place, share, every in parts
        ]

    def _by_label(self, shares: Tensor) -> list[list[float]]:
        """Return the probabilities `[N, C]` of labels, or of the likeliest word of each."""
        if self.among == "labels":
            return shares.tolist()
        firsts = [[word[0] for word in words] for words in self.tokens.ids]
        every = on_device([token for own in firsts for token in own], shares.device)
        by_label = torch.split(shares.index_select(1, every).cpu(), [*map(len, firsts)], dim=1)
        return torch.stack([own.amax(dim=-1) for own in by_label], dim=-1).tolist()

    def _named(self, features: Features, shares: list[float]) -> dict[Any, float]:
        """Return probabilities by label, or by index for the options that the example has."""
        options = features.facts["options"]
        return dict(zip(range(options) if options else self.tokens.labels, shares, strict=False))

    @property
    def _before(self) -> int:
        """The number of reads before the answer's: one if the sentinel is a target, else none."""
        return int(self.among == "vocabulary" and self.marked)

    def _features(self, example: Example, room: int) -> Features:
        row = self.row(self.pieces(example), room, self.tokens.masks)
        if self.decodes:
            row = replace(row, reads=row.reads[len(row.reads) - 1 - self._before :])
        label = self.tokens.labels.index(str(example.target))
        targets = [label]
        if self.among == "vocabulary":
            sentinel = row.decoder[-1:] if row.decoder and self._before else []
            targets = [*sentinel, self.tokens.ids[label][0][0]]
        if self.closed:
            row, targets = self._close(row, targets)
        options = len(example.fields.get("options", ())) if self.pvp.words is None else 0
        return Features(example.id, [row], targets, {"options": options})

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
        if min(counts) == scores.shape[1]:
            return scores
        places = torch.arange(scores.shape[1], device=scores.device)
        absent = places >= on_device(counts, scores.device)[:, None]
        return scores.masked_fill(absent, -torch.inf)

    def _label(self, features: Features, best: int) -> int | str:
        """Return the label of an index or token, or a wrong one for a token of no label.

        That of an example with options is -1.
        """
        options, labels = features.facts["options"], self.tokens.labels
        if self.among == "vocabulary" and best not in self._owners:
            word = self.encoder.spelling.tokens([best])[0]
            return -1 if options else f"other word: {word}" if word in labels else word
        label = self._owners[best] if self.among == "vocabulary" else best
        if options:
            return label if label < options else -1
        return labels[label]

    @cached_property
    def _owners(self) -> dict[int, int]:
        """The label of each label word's token."""
        return {word[0]: i for i, words in enumerate(self.tokens.ids) for word in words}
