"""Span verification by filling in: whom does the head itself name in the pronoun's place (WSC)?"""

import re
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from ptrun.backbone.base import BackboneOutput
from ptrun.readout.base import Batch, Features
from ptrun.readout.cloze import Cloze
from ptrun.types import Example, Prediction

_EXTRA = 1  # masks beyond the noun phrase's tokens
RIGHT, WRONG = "same", "different"


class Fill(Cloze):
    """Learns the noun phrase's tokens at the masks; answers by the words it would put there.

    Only examples where the noun phrase is right teach. To answer, the mask it is surest of is
    filled first, then the next; `same` if all words found are in the noun phrase or the other way
    round (P-tuning §2b), so no words are too. There is one mask more than tokens, its target the
    padding token; the released code draws 0 to 3 more when it writes its training examples out.
    """

    def teaching(self, examples: Sequence[Example], room: int) -> list[Example]:
        """Return the examples that are learned from."""
        return [example for example in examples if example.target == RIGHT]

    def encode(self, examples: Sequence[Example], room: int) -> list[Features]:
        """Return one row an example."""
        return [self._features(example, room) for example in examples]

    def loss(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return cross-entropy summed over the tokens of right noun phrases, `[]`."""
        assert output.logits is not None
        keep = torch.tensor(
            [bool(f.targets) for f in batch.features for row in f.rows for _ in row.reads]
        ).to(output.logits.device)
        logits = output.logits.float()
        if not len(batch.targets):
            return 0 * logits.sum()
        return functional.cross_entropy(logits[keep], batch.targets, reduction="sum")

    def decode(self, output: BackboneOutput, batch: Batch) -> list[Prediction | Features]:
        """Fill the surest mask of each row; answer when none is left."""
        assert output.logits is not None
        logits = batch.by_example(output.logits.float())
        return [self._fill(f, own) for f, own in zip(batch.features, logits, strict=True)]

    def _fill(self, features: Features, logits: Tensor) -> Prediction | Features:
        row = features.rows[0]
        surest, words = logits.softmax(dim=-1).max(dim=-1)
        best = int(surest.argmax())
        at, word = row.reads[best], int(words[best])
        ids = [word if place == at else id_ for place, id_ in enumerate(row.ids)]
        left = [place for place in row.reads if place != at]
        found = {**features.facts["found"], str(at): word}
        if left:
            facts = {**features.facts, "found": found}
            return replace(features, rows=[replace(row, ids=ids, reads=left)], facts=facts)
        named = [found[place] for place in sorted(found, key=int)]
        return Prediction(features.id, self.judged(named, features.facts["noun"]))

    def judged(self, named: list[int], noun: str) -> str:
        """Return the answer that tokens give: whether they are about the noun phrase."""
        tokenizer = self.backbone.tokenizer()
        said = _words(tokenizer.decode(named, skip_special_tokens=True))
        gold = _words(noun)
        return RIGHT if said <= gold or gold <= said else WRONG

    def _features(self, example: Example, room: int) -> Features:
        noun = example.fields["span1_text"]
        words = self.encoder.spelling.answer(noun)
        row = self.row(self.pieces(example), room, len(words) + _EXTRA)
        pad = self.backbone.tokenizer().pad_token_id or 0
        targets = [*words, *[pad] * _EXTRA] if example.target == RIGHT else []
        return Features(example.id, [row], targets, {"noun": noun, "found": {}})


def _words(text: str) -> set[str]:
    """Return its words, letters alone."""
    return set(re.findall(r"[^\W\d_]+", text.lower()))
