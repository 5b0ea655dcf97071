"""The log-probability of each token of a prompt that stands as it is behind what is learned."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

import torch
from torch import Tensor

from ptrun.backbone.base import BackboneOutput
from ptrun.backbone.choosing import TokenScore, token_scores
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.readout.base import Batch, Features, Readout, TokenRow
from ptrun.types import Example, Prediction

_TOKENS = 64  # whose logits are in memory together: those of a batch may be gigabytes


class Scores(Readout):
    """Scores the field `ids` of an example, and the `top` likeliest tokens at each place.

    The value of a prediction holds a `TokenScore` for each token but the first, and that of the
    likeliest token after them.

    >>> from ptrun.testing import read
    >>> from ptrun.readout.scores import Scores
    >>> from ptrun.types import Example
    >>> readout = Scores(read("method=lora", "backbone=pocket_gpt2")[0].backbone)
    >>> (row,) = readout.encode([Example("1", {"ids": [5, 6, 7], "top": 0}, None)], room=9)
    >>> row.targets
    [6, 7, -1]
    """

    def __init__(self, backbone: PretrainedBackbone):
        self.backbone = backbone

    def encode(self, examples: Sequence[Example], room: int) -> list[Features]:
        """Return the ids of each example as a row; none is cut, and the last has no target."""
        rows = [(e.id, [*e.fields["ids"]], e.fields["top"]) for e in examples]
        return [
            Features(name, [TokenRow(ids, reads=[*range(len(ids))])], [*ids[1:], -1], {"top": top})
            for name, ids, top in rows
        ]

    def loss(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return the negative log-likelihood of all tokens, `[]`."""
        logprobs = [score.logprob for row in self._rows(output, batch) for score in row[:-1]]
        return torch.tensor(-sum(logprobs))

    def decode(self, output: BackboneOutput, batch: Batch) -> list[Prediction | Features]:
        """Return the scores of each example."""
        rows = zip(batch.features, self._rows(output, batch), strict=True)
        return [
            Prediction(f.id, [replace(score, top=score.top[: f.facts["top"]]) for score in row])
            for f, row in rows
        ]

    def _rows(self, output: BackboneOutput, batch: Batch) -> list[list[TokenScore]]:
        assert output.hidden is not None
        top = max(f.facts["top"] for f in batch.features)
        parts = zip(*(torch.split(t, _TOKENS) for t in (output.hidden, batch.targets)), strict=True)
        scores: list[TokenScore] = []
        for hidden, targets in parts:
            logits = self.backbone.architecture.logits(self.backbone.model, hidden)
            likeliest = torch.where(targets < 0, logits.argmax(dim=-1), targets)
            scores += token_scores(logits, likeliest.tolist(), top)
        left = iter(scores)
        return [[*islice(left, len(f.targets))] for f in batch.features]
