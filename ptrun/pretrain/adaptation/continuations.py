"""Texts and their continuations from a corpus: what an adapted encoder reads, its decoder writes.

A document's lines are encoded one by one and joined, as PPT's code does; every `length` tokens are
a text, cut at a random place. Documents are read in blocks, and the texts of a block shuffled, so
memory stays flat in the corpus. Seed and place in the corpus decide each draw: a stream goes on
from any place as if it had never stopped.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from ptrun.errors import UserError
from ptrun.pretrain.adaptation.recipe import Adaptation
from ptrun.readout.base import Features, Row
from ptrun.task.ppt.blocks import blocks, part_of
from ptrun.task.ppt.documents import Document, documents

_SHARES = (99, 1)  # of documents: learned from, and held out
_CHARACTERS = 4_000_000  # in a block

Encode = Callable[[Sequence[str]], Sequence[list[int]]]


@dataclass(frozen=True)
class Place:
    """Where a stream stands: how often the corpus was read, which block, and texts of it used."""

    epoch: int = 0
    block: int = 0
    used: int = 0


@dataclass(frozen=True)
class Continuations:
    """The texts of a corpus.

    Args:
        recipe: the corpus and how it is cut.
        encode: lines to token ids, no marks added.
        start: the token a decoder begins with.
        sentinel: the mark between a text and its continuation, or None.
    """

    recipe: Adaptation
    encode: Encode
    start: int
    sentinel: int | None = None

    def after(self, place: Place) -> Iterator[tuple[Place, Features]]:
        """Yield texts to learn from without end, each with the place behind it.

        Raises:
            UserError: the corpus cannot be read, or has none.
        """
        while True:
            found = place.block > 0
            for number, block in enumerate(self._blocks()):
                if number < place.block:
                    continue
                texts = self._texts(block, f"{self.recipe.seed}:{place.epoch}:{number}")
                for used in range(place.used, len(texts)):
                    yield Place(place.epoch, number, used + 1), texts[used]
                found |= bool(texts)
                place = Place(place.epoch, number + 1)
            if not found:
                raise UserError(f"corpus={self.recipe.corpus}: no text of two tokens or more.")
            place = Place(place.epoch + 1)

    def held_out(self) -> list[Features]:
        """Return the texts that are not learned from, only their continuations to be told.

        Raises:
            UserError: the corpus cannot be read, or is too small to have any.
        """
        made = (
            text
            for number, document in enumerate(self._documents(1))
            for text in self._texts([document], f"{self.recipe.seed}:held out:{number}")
        )
        found = [self._unmarked(text) for text in islice(made, self.recipe.held_out)]
        if not found:
            raise UserError(
                f"corpus={self.recipe.corpus}: too small; 1 document in 100 is held out, and none "
                "was.\nGive a larger corpus, or one whose documents are shorter."
            )
        return found

    def _blocks(self) -> Iterator[list[Document]]:
        """Yield what is learned from, in blocks that end where they have enough characters."""
        return blocks(self._documents(0), characters=_CHARACTERS - 1)

    def _documents(self, part: int) -> Iterator[Document]:
        read = documents(self.recipe.corpus, field=self.recipe.field)
        return (document for document in read if part_of(document, _SHARES) == part)

    def _texts(self, block: Sequence[Document], seed: str) -> list[Features]:
        """Return the texts of some documents, shuffled."""
        dice, length, made = random.Random(seed), self.recipe.length, []
        for document in block:
            ids = [token for line in self.encode(document) for token in line]
            for at in range(0, len(ids) - 1, length):
                text = ids[at : at + length]
                made.append(divided(text, dice.randrange(1, len(text)), self.start, self.sentinel))
        dice.shuffle(made)
        return made

    def _unmarked(self, text: Features) -> Features:
        """Return a text of which only words are read: the sentinel is easy."""
        marks = int(self.sentinel is not None)
        (row,) = text.rows
        return replace(
            text, rows=[replace(row, reads=row.reads[marks:])], targets=text.targets[marks:]
        )


def encoder(tokenizer: Any) -> Encode:
    """Return what encodes lines: no marks are added, and those that stand in a text are text."""
    settings = {"add_special_tokens": False, "split_special_tokens": True, "verbose": False}

    def encode(lines: Sequence[str]) -> list[list[int]]:
        ids: list[list[int]] = tokenizer(list(lines), **settings)["input_ids"]
        return ids

    return encode


def divided(text: list[int], cut: int, start: int, sentinel: int | None = None) -> Features:
    """Return the row of a text that is cut after `cut` tokens.

    Encoder: the text, then the sentinel. Decoder: start, sentinel, continuation but its last token;
    each position should say the next one (PPT's code; without a sentinel, Lester et al. 2021).
    """
    mark = [] if sentinel is None else [sentinel]
    said = [*mark, *text[cut:]]
    row = Row([*text[:cut], *mark], reads=list(range(len(said))), decoder=[start, *said[:-1]])
    return Features("", [row], said)
