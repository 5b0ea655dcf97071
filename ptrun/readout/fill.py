"""Span verification by filling masks: the words predicted in the pronoun's place (WSC)."""

import random
import re
from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor
from torch.nn import functional

from ptrun.backbone.base import BackboneOutput, on_device
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.prompt.pvp import PVP
from ptrun.readout.base import Batch, Features, word_logits
from ptrun.readout.cloze import Cloze
from ptrun.task.base import Task
from ptrun.types import Example, Prediction

_EXTRA = 1  # masks beyond the noun phrase's tokens
_DRAWN = "extra_masks"
_SEED = 42  # the released code's, in all its repetitions
RIGHT, WRONG = "same", "different"


class Fill(Cloze):
    """Learns the noun phrase's tokens at the masks; compares the words predicted there with it.

    Only examples with the right noun phrase are trained on. In evaluation, the mask with the most
    probable token is filled first, then the next. The prediction is `same` if all predicted words
    are in the noun phrase, or all its words among them (P-tuning §2b); so no words are `same` too.
    There is one mask more than tokens, with the padding token as its target.

    Args:
        backbone, task, pvp, literal_sep: as in `Cloze`.
        random_masks: train with 0 to 3 more masks instead, drawn once for each example as the
            released code draws them.
    """

    teaches = True

    def __init__(
        self,
        backbone: PretrainedBackbone,
        task: Task,
        pvp: PVP,
        *,
        literal_sep: bool = False,
        random_masks: bool = False,
    ):
        super().__init__(backbone, task, pvp, literal_sep=literal_sep)
        self.random_masks = random_masks

    def teaching(self, examples: Sequence[Example], room: int) -> list[Example]:
        """Return the examples to train on, with their number of masks if it is random."""
        right = [example for example in examples if example.target == RIGHT]
        if not self.random_masks:
            return right
        pairs = zip(right, _drawn(len(right)), strict=True)
        return [replace(e, fields={**e.fields, _DRAWN: count}) for e, count in pairs]

    def loss(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return cross-entropy summed over the tokens of right noun phrases, `[]`."""
        logits = word_logits(output)
        kept = [bool(f.targets) for f in batch.features for row in f.rows for _ in row.reads]
        if not len(batch.targets):
            return 0 * logits.sum()
        places = on_device([place for place, keep in enumerate(kept) if keep], logits.device)
        return functional.cross_entropy(logits[places], batch.targets, reduction="sum")

    def decode(self, output: BackboneOutput, batch: Batch) -> list[Prediction | Features]:
        """Fill the surest mask of each row; return the prediction when no mask is left."""
        found = word_logits(output).softmax(dim=-1).max(dim=-1)
        own = (batch.by_example(values.cpu()) for values in (found.values, found.indices))
        return [self._fill(*each) for each in zip(batch.features, *own, strict=True)]

    def _fill(
        self, features: Features, probabilities: Tensor, words: Tensor
    ) -> Prediction | Features:
        best = int(probabilities.argmax())
        at, word = features.rows[0].reads[best], int(words[best])
        row = features.rows[0].filled(best, word)
        found = {**features.facts["found"], str(at): word}
        if row.reads:
            return replace(features, rows=[row], facts={**features.facts, "found": found})
        named = [found[place] for place in sorted(found, key=int)]
        return Prediction(features.id, self.judged(named, features.facts["noun"]))

    def judged(self, named: list[int], noun: str) -> str:
        """Return whether the predicted tokens name the noun phrase, as a label."""
        tokenizer = self.backbone.tokenizer()
        words = _words(tokenizer.decode(named, skip_special_tokens=True))
        gold = _words(noun)
        return RIGHT if words <= gold or gold <= words else WRONG

    def _features(self, example: Example, room: int) -> Features:
        noun = example.fields["span1_text"]
        words = self.encoder.spelling.answer(noun)
        extra = example.fields.get(_DRAWN, _EXTRA)
        row = self.row(self.pieces(example), room, len(words) + extra)
        pad = self.backbone.tokenizer().pad_token_id or 0
        targets = [*words, *[pad] * extra] if example.target == RIGHT else []
        return Features(example.id, [row], targets, {"noun": noun, "found": {}})


def _drawn(count: int) -> list[int]:
    """Return 0 to 3 for each example; the first draws are for an evaluation on the same ones."""
    dice = random.Random(_SEED)
    return [dice.randint(0, 3) for _ in range(2 * count)][count:]


def _words(text: str) -> set[str]:
    """Return the words of a text, letters alone."""
    return set(re.findall(r"[^\W\d_]+", text.lower()))
