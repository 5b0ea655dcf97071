"""Documents of one part of a corpus, each with other documents beside it.

PPT's code takes the others from copies of the corpus that are shuffled as a whole. Here they come
from the same block of 1,000 usable documents, so that memory stays flat in a stream of any length:
shuffle a corpus once if its neighbours are of one kind.
"""

import hashlib
import math
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ptrun.task.ppt.documents import Document
from ptrun.task.ppt.words import has_words

_DOCUMENTS = 1_000
_CHARACTERS = 20_000_000  # a block of long documents ends earlier


@dataclass(frozen=True)
class Need:
    """What a kind of example asks of documents.

    Args:
        lines: fewest lines of one.
        characters, words: fewest of every line; with a shorter line the whole document is left
            out, as neighbours would be none once it is gone.
        others: how many other documents an example draws on.
    """

    lines: int
    characters: int
    words: int
    others: int

    def met(self, document: Document) -> bool:
        """Return whether a document can be used."""
        return len(document) >= self.lines and all(
            len(line) >= self.characters and has_words(line, self.words) for line in document
        )


@dataclass(frozen=True)
class Case:
    """A document, others, and a draw that its place in the corpus alone decides."""

    number: int
    document: Document
    others: Sequence[Document]
    rng: random.Random


def part_of(document: Document, shares: Sequence[int]) -> int:
    """Return the part a document falls in: its text decides, so equal ones are never in two."""
    hashed = hashlib.blake2b("\n".join(document).encode("utf-8", "surrogatepass"), digest_size=8)
    place = int.from_bytes(hashed.digest(), "big") % sum(shares)
    for part, share in enumerate(shares):
        if place < share:
            return part
        place -= share
    raise AssertionError("unreachable: places are below the sum of shares")


def cases(usable: Iterable[Document], others: int, seed: str) -> Iterator[Case]:
    """Yield each document with others of its block; a last block of too few is left out."""
    number = 0
    for block in blocks(usable, characters=_CHARACTERS, count=_DOCUMENTS):
        for place, document in enumerate(block):
            if len(block) > others:
                rng = random.Random(f"{seed}:{number}")
                drawn = rng.sample(range(len(block) - 1), others)
                beside = [block[other + (other >= place)] for other in drawn]
                yield Case(number, document, beside, rng)
            number += 1


def blocks(
    found: Iterable[Document], *, characters: int, count: float = math.inf
) -> Iterator[list[Document]]:
    """Yield documents in blocks, each ended by its last of `count` or by passing `characters`."""
    block: list[Document] = []
    size = 0
    for document in found:
        block.append(document)
        size += sum(map(len, document))
        if len(block) == count or size > characters:
            yield block
            block, size = [], 0
    if block:
        yield block
