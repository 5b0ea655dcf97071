"""The log-probability of each token of a prompt that stands as it is behind what is learned."""

from collections.abc import Sequence
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

    The value of a prediction holds a `TokenScore` for each token but the first.
    """

    def __init__(self, backbone: PretrainedBackbone):
        self.backbone = backbone

    def encode(self, examples: Sequence[Example], room: int) -> list[Features]:
        """Return the ids of each example as a row; none is cut."""
        rows = [(e.id, [*e.fields["ids"]], e.fields["top"]) for e in examples]
        return [
            Features(name, [TokenRow(ids, reads=[*range(len(ids) - 1)])], ids[1:], {"top": top})
            for name, ids, top in rows
        ]

    def loss(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return the negative log-likelihood of all tokens, `[]`."""
        return torch.tensor(-sum(score.logprob for score in self._scores(output, batch)))

    def decode(self, output: BackboneOutput, batch: Batch) -> list[Prediction | Features]:
        """Return the scores of each example."""
        left = iter(self._scores(output, batch))
        return [Prediction(f.id, [*islice(left, len(f.targets))]) for f in batch.features]

    def _scores(self, output: BackboneOutput, batch: Batch) -> list[TokenScore]:
        assert output.hidden is not None
        top = max(f.facts["top"] for f in batch.features)
        parts = zip(*(torch.split(t, _TOKENS) for t in (output.hidden, batch.targets)), strict=True)
        model, architecture = self.backbone.model, self.backbone.architecture
        return [
            score
            for hidden, tokens in parts
            for score in token_scores(architecture.logits(model, hidden), tokens.tolist(), top)
        ]
