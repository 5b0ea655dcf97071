"""Span verification by writing: whom does a blank infiller itself name in the pronoun's place?"""

from collections.abc import Sequence
from dataclasses import replace

import torch

from ptrun.backbone.base import BackboneOutput
from ptrun.readout.base import Batch, Features
from ptrun.readout.fill import Fill
from ptrun.types import Example, Prediction

_LONGEST = 16  # tokens of an answer
_SHOWN = "shown"


class Written(Fill):
    """Learns to write the noun phrase and to end it; answers by what it writes, token by token.

    What `Fill` is for masks. GLM's released code compares candidates instead, nouns mined from the
    text, which were never published.
    """

    def teaching(self, examples: Sequence[Example], room: int) -> list[Example]:
        """Return the examples that are learned from, told apart: their rows show the answer."""
        right = super().teaching(examples, room)
        return [replace(e, fields={**e.fields, _SHOWN: True}) for e in right]

    def decode(self, output: BackboneOutput, batch: Batch) -> list[Prediction | Features]:
        """Write one token more in each row; answer where the phrase ends."""
        assert output.logits is not None
        last = torch.stack([own[-1] for own in batch.by_example(output.logits)])
        pairs = zip(batch.features, last.argmax(dim=-1).tolist(), strict=True)
        return [self._written(features, token) for features, token in pairs]

    def _written(self, features: Features, token: int) -> Prediction | Features:
        row = features.rows[0]
        assert row.decoder is not None
        said = row.decoder[1:]
        if token == self.end or len(said) == _LONGEST:
            return Prediction(features.id, self.judged(said, features.facts["noun"]))
        longer = [*row.decoder, token]
        row = replace(row, decoder=longer, reads=[len(longer) - 1])
        return replace(features, rows=[row])

    def _features(self, example: Example, room: int) -> Features:
        noun = example.fields["span1_text"]
        row = self.row(self.pieces(example), self.room(room) - _LONGEST)
        assert row.decoder is not None and self.end is not None
        targets: list[int] = []
        if example.fields.get(_SHOWN):
            targets = [*self.encoder.spelling.answer(noun)[: _LONGEST - 1], self.end]
            decoder = [*row.decoder, *targets[:-1]]
            row = replace(row, decoder=decoder, reads=list(range(len(decoder))))
        return Features(example.id, [row], targets, {"noun": noun})
