"""The unlabelled corpus: documents as lists of connected sentences."""

import random
from collections.abc import Iterator

from ptrun.pocket.profile import chain, profile
from ptrun.pocket.review import review
from ptrun.pocket.story import story

DOCUMENTS = {"train": 72_000, "validation": 1_500}
KINDS = {review: 60, profile: 24, chain: 9, story: 7}  # a share of each


def documents(split: str) -> Iterator[list[str]]:
    """Yield the documents of a split; a document is its sentences in order, as plain text.

    Raises ValueError for a split other than train and validation.
    """
    if split not in DOCUMENTS:
        raise ValueError(f"split is {split!r}; allowed are {', '.join(DOCUMENTS)}")
    rng = random.Random(f"pocket corpus {split} 1")
    for _ in range(DOCUMENTS[split]):
        kind = rng.choices(list(KINDS), list(KINDS.values()))[0]
        yield kind(rng)
