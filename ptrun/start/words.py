"""Token ids to start a prompt from: label words, vocabulary, words of the task, or a text."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch

from ptrun.errors import UserError
from ptrun.method.base import Method
from ptrun.prompt.spelling import Spelling, mask_ids
from ptrun.readout.base import Features
from ptrun.readout.label_words import LabelWords
from ptrun.start.spec import Start

_TOP = 1000
_SENTINELS = 16  # more than the masks of any pattern


@dataclass(frozen=True)
class Source:
    """The sources of words.

    Args:
        start: the kind of words.
        method: method with the backbone and the read-out.
        rows: returns the encoded train and dev examples.
        draw: random number generator.
    """

    start: Start
    method: Method
    rows: Callable[[], Iterable[Features]]
    draw: torch.Generator

    def shuffled(self, ids: Sequence[int]) -> list[int]:
        """Return ids in random order."""
        order = torch.randperm(len(ids), generator=self.draw).tolist()
        return [ids[place] for place in order]

    def size(self) -> int:
        """Return the number of ids that have both a token and an embedding."""
        backbone = self.method.backbone
        rows = backbone.model.get_input_embeddings().weight.shape[0]
        return min(len(backbone.tokenizer()), int(rows))


def word_ids(source: Source, length: int) -> list[int]:
    """Return `length` token ids; fewer ids are repeated.

    Raises:
        UserError: there are no such words.
    """
    ids = _KINDS[source.start.kind](source, length)
    if not ids:
        raise UserError(f"start={source.start}: found no words; use start=vocabulary.")
    return [ids[place % len(ids)] for place in range(length)]


def _labels(source: Source, _length: int) -> list[int]:
    """Return the ids of the verbalizer's words by label; with a head, of the labels' names."""
    method = source.method
    if isinstance(method.readout, LabelWords):
        return [i for words in method.readout.tokens.ids for word in words for i in word]
    spelling = Spelling(method.backbone.tokenizer())
    names = (str(label).replace("_", " ") for label in method.task.labels)
    return [i for name in names for i in spelling.answer(name)]


def _vocabulary(source: Source, length: int) -> list[int]:
    return source.shuffled(range(source.size()))[:length]


def _top(source: Source, length: int) -> list[int]:
    return source.shuffled(range(min(_TOP, source.size())))[:length]


def _task_words(source: Source, length: int) -> list[int]:
    """Return the most frequent tokens of train and dev, without special tokens; ties by id."""
    tokenizer = source.method.backbone.tokenizer()
    special = {*tokenizer.all_special_ids, *mask_ids(tokenizer, _SENTINELS)[0]}
    counts = Counter(i for f in source.rows() for row in f.rows for i in row.ids)
    ranked = sorted(counts.keys() - special, key=lambda i: (-counts[i], i))
    return source.shuffled(ranked[:length])


def _text(source: Source, _length: int) -> list[int]:
    spelling = Spelling(source.method.backbone.tokenizer())
    return spelling.ids(source.start.value, spaced=False, opens=True)


_KINDS: dict[str, Callable[[Source, int], list[int]]] = {
    "labels": _labels,
    "vocabulary": _vocabulary,
    "top_1000": _top,
    "task_words": _task_words,
    "text": _text,
}
