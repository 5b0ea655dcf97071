"""The unlabelled corpus of the pocket world, read from `corpus.bz2`.

`python -m workshop.pocket` makes this file, in a checkout.
"""

import bz2
import json
from collections.abc import Iterator
from pathlib import Path

FILE = Path(__file__).with_name("corpus.bz2")
FIRST = 11  # the character of the first word; the one before it ends a line


def documents() -> Iterator[list[str]]:
    """Yield the documents; a document is its sentences in order, as plain text.

    The first line of the file lists the words, with the blanks before them. Each other line is a
    document with a character for each word: bz2 packs the text to 11 % so, and to 13 % as it is.
    """
    with bz2.open(FILE, "rt", encoding="utf-8", newline="\n") as lines:
        words = dict(enumerate(json.loads(next(lines)), FIRST))
        for line in lines:
            yield line.rstrip("\n").translate(words).split("\n")
