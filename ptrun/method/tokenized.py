"""Examples that are tokenized when a step or an evaluation reads them.

Tokens of many examples are kept nowhere: on one core of a CPU it takes less time to make a short
row again (about 20 us) than to read it back from a file, and both are a small part of its pass.
"""

from collections.abc import Iterator, Sequence
from typing import overload

from ptrun.method.base import Method
from ptrun.readout.base import Features
from ptrun.types import Example

TOKENS = ".tokens"
"""The folder below `outputs` for what is computed once for several runs."""
KEPT = 5000
"""Examples whose tokens are all made before training, so that their errors come first.

An evaluation holds the tokens of as many.
"""
_PART = 512  # examples that are encoded together where all are read


class Tokenized(Sequence[Features]):
    """Encoded examples, made when they are read.

    Args:
        places: which of the examples, in order; None is all.

    >>> from ptrun.testing import read
    >>> from ptrun.method.tokenized import Tokenized
    >>> method, batch, output = read("method=fine_tuning")
    >>> rows = Tokenized(method, method.task.load("test"))
    >>> rows[0].id, rows[0].tokens == len(rows[0].rows[0].ids)
    ('test-0', True)
    """

    def __init__(
        self, method: Method, examples: Sequence[Example], places: Sequence[int] | None = None
    ):
        self.method, self.examples = method, examples
        self._places = range(len(examples)) if places is None else places

    def __len__(self) -> int:
        """Return the number of examples."""
        return len(self._places)

    @overload
    def __getitem__(self, index: int) -> Features: ...
    @overload
    def __getitem__(self, index: slice) -> list[Features]: ...
    def __getitem__(self, index: int | slice) -> Features | list[Features]:
        """Return one encoded example, or a list of them."""
        if isinstance(index, slice):
            return self.pick(range(*index.indices(len(self))))
        return self.pick([index])[0]

    def __iter__(self) -> Iterator[Features]:
        """Yield all; a part of them is in memory at a time."""
        for start in range(0, len(self), _PART):
            yield from self[start : start + _PART]

    def pick(self, places: Sequence[int]) -> list[Features]:
        """Return the encoded examples at some places, tokenized together."""
        return self.method.encode([self.examples[self._places[place]] for place in places])

    def part(self, places: Sequence[int]) -> "Tokenized":
        """Return the examples at some places; they, too, are encoded when they are read."""
        return Tokenized(self.method, self.examples, [self._places[place] for place in places])


def picked(features: Sequence[Features], places: Sequence[int]) -> list[Features]:
    """Return the examples at some places."""
    if isinstance(features, Tokenized):
        return features.pick(places)
    return [features[place] for place in places]


def tokenized(method: Method, examples: Sequence[Example]) -> Sequence[Features]:
    """Return encoded examples: a list if there are few, else they are encoded when read."""
    many = len(examples) > KEPT
    if many and method.backbone.rowless:  # its error comes now, not in a later step
        for _ in method.encoded(examples):
            continue
    return Tokenized(method, examples) if many else method.encode(examples)
