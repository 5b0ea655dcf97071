"""A head that tags every word of a sentence."""

from collections.abc import Sequence
from typing import Any

from ptrun.backbone.base import BackboneOutput
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.prompt.spelling import SEPARATOR
from ptrun.readout.base import Batch, Features, Row
from ptrun.readout.head import Head, row_limit, tokens
from ptrun.task.base import Task
from ptrun.types import Example, Prediction


class TokenHead(Head):
    """One label for each word, read at its first sub-token; truncated words get `O`.

    So do words without a sub-token, such as a joiner of emoji, unless an entity goes on after them.

    There is no pooler. An encoder-decoder is read in its encoder.

    Args:
        backbone, task: as in `Head`.
        literal_sep: write the word "[SEP]" between a sentence and its predicate, as P-tuning v2's
            code does for all backbones: RoBERTa reads it as plain text. By default it is the
            tokenizer's own separator.
    """

    everywhere = True

    def __init__(self, backbone: PretrainedBackbone, task: Task, *, literal_sep: bool = False):
        super().__init__(backbone, task, len(task.labels))
        self.literal_sep = literal_sep

    def encode(self, examples: Sequence[Example], room: int) -> list[Features]:
        """Tokenize pre-split words."""
        tokenizer = self.backbone.tokenizer(words=True)
        words = [self._words(e, tokenizer) for e in examples]
        limit = row_limit(self.task, room)
        rows = tokenizer(words, is_split_into_words=True, truncation=True, max_length=limit)
        return [self._features(example, rows, i) for i, example in enumerate(examples)]

    def decode(self, output: BackboneOutput, batch: Batch) -> list[Prediction | Features]:
        """Return a tag for each word of each example."""
        pairs = batch.pairs(self.scores(output, batch).argmax(dim=-1).cpu())
        return [Prediction(f.id, self._tags(f, best.tolist())) for f, best in pairs]

    def _tags(self, features: Features, best: list[int]) -> list[str]:
        tags = [self.task.labels[0]] * features.facts["size"]
        for word, label in zip(features.facts["words"], best, strict=True):
            tags[word] = self.task.labels[label]
        for word in features.facts.get("unseen", ()):
            if word + 1 < len(tags) and tags[word + 1].startswith("I-"):
                tags[word] = tags[word + 1]  # the entity goes on around it
        return tags

    def _words(self, example: Example, tokenizer: Any) -> list[str]:
        """Return the words of a sentence, then a separator and the predicate if there is one."""
        words: list[str] = example.fields[self.task.fields[0]]
        if "predicate" not in example.fields:
            return words
        own = tokenizer.sep_token or tokenizer.eos_token or "|"
        border = SEPARATOR if self.literal_sep else own
        return [*words, border, example.fields["predicate"]]

    def _features(self, example: Example, rows: Any, i: int) -> Features:
        first: dict[int, int] = {}
        for position, word in enumerate(rows.word_ids(i)):
            if word is not None and word < len(example.target):  # not the predicate's copy
                first.setdefault(word, position)
        row = Row(*tokens(rows, i), list(first.values()))
        targets = [self.task.labels.index(example.target[word]) for word in first]
        last = max(first, default=-1)
        unseen = [word for word in range(last) if word not in first]
        facts = {"size": len(example.target), "words": list(first)}
        facts |= {"unseen": unseen} if unseen else {}
        return Features(example.id, [row], targets, facts)
