"""Texts of a corpus for LM adaptation: the encoder reads a text, the decoder its continuation.

The lines of a document are encoded one by one and joined, as in PPT's code. Every `length` tokens
are a text, cut at a random place. Documents are read in blocks, and the texts of a block are
shuffled, so memory does not grow with the corpus. Seed and place in the corpus decide each draw, so
a stream resumes exactly from any place.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from ptrun.errors import UserError
from ptrun.pretrain.recipe import Adaptation
from ptrun.readout.base import Features, Row
from ptrun.task.ppt.blocks import blocks, part_of
from ptrun.task.ppt.documents import Document, documents

_SHARES = (99, 1)  # of documents: trained on, and held out
_CHARACTERS = 4_000_000  # in a block

Encode = Callable[[Sequence[str]], Sequence[list[int]]]


@dataclass(frozen=True)
class Place:
    """The place of a stream: epoch, block of documents, and number of its texts already used."""

    epoch: int = 0
    block: int = 0
    used: int = 0


@dataclass(frozen=True)
class Continuations:
    """The texts of a corpus.

    Args:
        recipe: the corpus and the lengths of texts.
        encode: a function from lines to token ids without special tokens.
        start: the first token of the decoder.
        sentinel: the token between a text and its continuation, or None.
    """

    recipe: Adaptation
    encode: Encode
    start: int
    sentinel: int | None = None

    def after(self, place: Place) -> Iterator[tuple[Place, Features]]:
        """Yield training texts without end, each with the place after it.

        Raises:
            UserError: the corpus cannot be read, or has no texts.
        """
        while True:
            has_text = place.block > 0
            for number, block in enumerate(self._blocks()):
                if number < place.block:
                    continue
                texts = self._texts(block, f"{self.recipe.seed}:{place.epoch}:{number}")
                for used in range(place.used, len(texts)):
                    yield Place(place.epoch, number, used + 1), texts[used]
                has_text |= bool(texts)
                place = Place(place.epoch, number + 1)
            if not has_text:
                raise UserError(f"corpus={self.recipe.corpus}: no text of two tokens or more.")
            place = Place(place.epoch + 1)

    def held_out(self) -> list[Features]:
        """Return the held-out texts, without the sentinel: it is easy to predict.

        Raises:
            UserError: the corpus cannot be read, or is too small.
        """
        every = (
            text
            for number, document in enumerate(self._documents(1))
            for text in self._texts([document], f"{self.recipe.seed}:held out:{number}")
        )
        marks = int(self.sentinel is not None)
        texts = [_without_first(text, marks) for text in islice(every, self.recipe.held_out)]
        if not texts:
            raise UserError(
                f"corpus={self.recipe.corpus}: too small; 1 document in 100 is held out, and none "
                "was.\nUse a larger corpus, or one with shorter documents."
            )
        return texts

    def _blocks(self) -> Iterator[list[Document]]:
        """Yield the training documents in blocks of at least `_CHARACTERS` characters."""
        return blocks(self._documents(0), characters=_CHARACTERS - 1)

    def _documents(self, part: int) -> Iterator[Document]:
        read = documents(self.recipe.corpus, field=self.recipe.field)
        return (document for document in read if part_of(document, _SHARES) == part)

    def _texts(self, block: Sequence[Document], seed: str) -> list[Features]:
        """Return the texts of some documents, shuffled."""
        rng, length, texts = random.Random(seed), self.recipe.length, []
        for document in block:
            ids = [token for line in self.encode(document) for token in line]
            for at in range(0, len(ids) - 1, length):
                text = ids[at : at + length]
                texts.append(divided(text, rng.randrange(1, len(text)), self.start, self.sentinel))
        rng.shuffle(texts)
        return texts


def _without_first(text: Features, count: int) -> Features:
    """Return a text without its first targets."""
    (row,) = text.rows
    rows = [replace(row, reads=row.reads[count:])]
    return replace(text, rows=rows, targets=text.targets[count:])


def encoder(tokenizer: Any) -> Encode:
    """Return a function from lines to token ids; it treats special tokens in a text as text."""
    settings = {"add_special_tokens": False, "split_special_tokens": True, "verbose": False}

    def encode(lines: Sequence[str]) -> list[list[int]]:
        ids: list[list[int]] = tokenizer(list(lines), **settings)["input_ids"]
        return ids

    return encode


def divided(text: list[int], cut: int, start: int, sentinel: int | None = None) -> Features:
    """Return the row of a text that is cut after `cut` tokens.

    Encoder: the text, then the sentinel. Decoder: start, sentinel, continuation without its last
    token; each position predicts the next (PPT's code; without a sentinel, Lester et al. 2021).
    """
    mark = [] if sentinel is None else [sentinel]
    targets = [*mark, *text[cut:]]
    row = Row([*text[:cut], *mark], reads=list(range(len(targets))), decoder=[start, *targets[:-1]])
    return Features("", [row], targets)
