"""Span verification by writing: the words that a blank infiller writes in the pronoun's place."""

from collections.abc import Sequence
from dataclasses import replace

from ptrun.backbone.base import BackboneOutput
from ptrun.readout.base import Batch, Features, word_logits
from ptrun.readout.fill import Fill
from ptrun.readout.head import row_limit
from ptrun.types import Example, Prediction

_LONGEST = 16  # tokens of an answer
_SHOWN = "shown"


class Written(Fill):
    """Learns to write the noun phrase and its end; predicts from what it writes, token by token.

    It is `Fill` without masks. GLM's released code compares candidates instead: nouns mined from
    the text, which were never published.
    """

    def teaching(self, examples: Sequence[Example], room: int) -> list[Example]:
        """Return the examples to train on, marked: their rows show the answer."""
        right = super().teaching(examples, room)
        return [replace(e, fields={**e.fields, _SHOWN: True}) for e in right]

    def decode(self, output: BackboneOutput, batch: Batch) -> list[Prediction | Features]:
        """Write one more token in each row; return the prediction when the phrase ends."""
        pairs = batch.pairs(word_logits(output).argmax(dim=-1).cpu())
        return [self._written(features, int(tokens[-1])) for features, tokens in pairs]

    def _written(self, features: Features, token: int) -> Prediction | Features:
        row = features.rows[0]
        assert row.decoder is not None
        phrase = row.decoder[1:]
        if token == self.end or len(phrase) == _LONGEST:
            return Prediction(features.id, self.judged(phrase, features.facts["noun"]))
        longer = [*row.decoder, token]
        return replace(features, rows=[replace(row, decoder=longer, reads=[len(longer) - 1])])

    def _features(self, example: Example, room: int) -> Features:
        noun = example.fields["span1_text"]
        row = self.row(self.pieces(example), row_limit(self.task, room) - _LONGEST)
        assert row.decoder is not None and self.end is not None
        targets: list[int] = []
        if example.fields.get(_SHOWN):
            targets = [*self.encoder.spelling.answer(noun)[: _LONGEST - 1], self.end]
            decoder = [*row.decoder, *targets[:-1]]
            row = replace(row, decoder=decoder, reads=list(range(len(decoder))))
        return Features(example.id, [row], targets, {"noun": noun})
