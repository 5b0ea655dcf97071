"""COPA as P-tuning's released code trains it: both options in one row, one margin a batch."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from ptrun.backbone.base import BackboneOutput, on_device
from ptrun.readout.base import Batch, Features, word_logits
from ptrun.readout.candidates import Candidates
from ptrun.types import Example

_TAUGHT = "one_row"


class OneRow(Candidates):
    """Predicts as `Candidates` does; an example is trained in one row, that of its longest option.

    The tokens of the right option and of the wrong one are compared at the first masks of that row.
    The loss is max(0, 1 + CE(right) - CE(wrong)), each CE the mean over all tokens of the batch
    (P-tuning §2b, which has it from PET).
    """

    def teaching(self, examples: Sequence[Example], room: int) -> list[Example]:
        """Return the training examples, marked, followed by the swapped ones."""
        taught = super().teaching(examples, room)
        return [replace(e, fields={**e.fields, _TAUGHT: True}) for e in taught]

    def loss(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return the margin of the batch times its number of examples, `[]`."""
        right: list[Tensor] = []
        wrong: list[Tensor] = []
        for features, logits in batch.pairs(word_logits(output)):
            for option, tokens in enumerate(features.facts["words"]):
                index = on_device(tokens, logits.device)
                own = functional.cross_entropy(logits[: len(tokens)], index, reduction="none")
                (right if option in features.facts["right"] else wrong).append(own)
        margin = 1 + torch.cat(right).mean() - torch.cat(wrong).mean()
        return margin.clamp(min=0) * len(batch.features)

    def _features(self, example: Example, room: int) -> Features:
        features = super()._features(example, room)
        if _TAUGHT not in example.fields:
            return features
        return replace(features, rows=[max(features.rows, key=lambda row: len(row.reads))])
