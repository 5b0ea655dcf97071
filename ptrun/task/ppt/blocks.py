"""Documents of one part of a corpus, each together with other documents.

PPT's code draws the other documents from shuffled copies of the whole corpus. Here they come from
the same block of 1,000 usable documents, so memory use does not grow with the corpus. Shuffle the
corpus once if neighbouring documents are similar.
"""

import hashlib
import math
import random
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from ptrun.task.ppt.documents import Document
from ptrun.task.ppt.words import has_words

_DOCUMENTS = 1_000
_CHARACTERS = 20_000_000  # a block of long documents ends earlier


@dataclass(frozen=True)
class Need:
    """What a kind of example requires of documents.

    Args:
        lines: fewest lines of a document.
        characters, words: fewest of every line. One shorter line rejects the whole document:
            without it, the lines around it would look like neighbours.
        others: how many other documents an example uses.
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
    """A document, other documents, and a generator seeded by its number in the corpus."""

    number: int
    document: Document
    others: Sequence[Document]
    rng: random.Random


def part_of(document: Document, shares: Sequence[int]) -> int:
    """Return the part of a document; its text decides, so equal documents share a part."""
    hashed = hashlib.blake2b("\n".join(document).encode("utf-8", "surrogatepass"), digest_size=8)
    place = int.from_bytes(hashed.digest(), "big") % sum(shares)
    return bisect_right(list(accumulate(shares)), place)


def cases(usable: Iterable[Document], others: int, seed: str) -> Iterator[Case]:
    """Yield each document with others of its block; a block with too few is left out."""
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
    usable: Iterable[Document], *, characters: int, count: float = math.inf
) -> Iterator[list[Document]]:
    """Yield blocks of `count` documents; a block of more than `characters` ends earlier."""
    block: list[Document] = []
    size = 0
    for document in usable:
        block.append(document)
        size += sum(map(len, document))
        if len(block) == count or size > characters:
            yield block
            block, size = [], 0
    if block:
        yield block
