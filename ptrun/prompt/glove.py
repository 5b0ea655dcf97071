"""Word vectors from a local text file of `word v1 v2 ...` lines, and a text as their average.

IDPG, Wu et al. 2022, uses glove.6B.300d.txt: split at blanks, remove ASCII punctuation, lower the
case, take the mean over known words. A text without known words gets a vector from N(0, 0.6²). The
authors draw it anew each time; here it depends on the text alone.
"""

import hashlib
import os
import string
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from ptrun.errors import UserError

_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_NUMERIC = b"0123456789+-.eE \r\n"
_STD = 0.6


def glove(file: str) -> "Glove":
    """Return a file's vectors; callers that name the same file share them.

    Raises:
        UserError: there is no such file, or its first line has no vector.
    """
    path = Path(os.path.expanduser(file))
    if not os.path.isfile(path):
        raise UserError(
            f"method.glove={file}: no such file; give a text file of `word v1 v2 ...` lines, such "
            "as glove.6B.300d.txt."
        )
    found = path.stat()
    return _opened(path.resolve(), found.st_size, found.st_mtime_ns)


@cache
def _opened(path: Path, _size: int, _changed: int) -> "Glove":
    return Glove(path)


class Glove:
    """Vectors by word; memory holds the offset of each word, and the vectors looked up so far."""

    def __init__(self, path: Path):
        self.path = path
        with path.open("rb") as opened:
            self.width = len(opened.readline().split()) - 1
        if self.width < 1:
            raise UserError(f"method.glove={path}: line 1 has no numbers after its word.")
        self._starts: dict[bytes, int] = {}
        self._known: dict[str, Tensor | None] = {}

    def digest(self) -> str:
        """Return a fingerprint of the content."""
        with self.path.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()[:16]

    def read(self) -> None:
        """Index the file, once.

        Raises:
            UserError: a line has more or fewer numbers than the first, or no numbers.
        """
        if self._starts:
            return
        starts: dict[bytes, int] = {}
        start = 0
        with self.path.open("rb") as opened:
            for number, line in enumerate(opened, start=1):
                word, _, rest = line.partition(b" ")
                self._check(number, rest)
                starts.setdefault(word, start)
                start += len(line)
        self._starts = starts

    def _check(self, number: int, rest: bytes) -> None:
        where = f"method.glove={self.path}: line {number}"
        count = (b" " + rest).rstrip().count(b" ")
        if count != self.width:
            raise UserError(f"{where} has {count} numbers after its word, line 1 has {self.width}.")
        if rest.translate(None, _NUMERIC):
            raise UserError(f"{where} has text among the numbers after its word.")

    def mean(self, text: str) -> Tensor:
        """Return the average `[width]` over the words that have a vector."""
        words = [word.translate(_NO_PUNCTUATION).lower() for word in text.split()]
        known = [vector for word in words if (vector := self.vector(word)) is not None]
        return torch.stack(known).mean(dim=0) if known else self._drawn(text)

    def vector(self, word: str) -> Tensor | None:
        """Return a word's vector `[width]`, or None.

        Raises:
            UserError: its line has something that is not a number.
        """
        if word not in self._known:
            self.read()
            start = self._starts.get(word.encode("utf-8", "surrogatepass"))
            self._known[word] = None if start is None else self._at(start)
        return self._known[word]

    def _at(self, start: int) -> Tensor:
        with self.path.open("rb") as opened:
            opened.seek(start)
            line = opened.readline().decode("utf-8", "replace")
        word, _, rest = line.partition(" ")
        try:
            return torch.tensor([float(number) for number in rest.split()])
        except ValueError as error:
            where = f"method.glove={self.path}: the vector of {word!r}"
            raise UserError(f"{where}: {error}.") from error

    def _drawn(self, text: str) -> Tensor:
        hashed = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=7).digest()
        source = torch.Generator().manual_seed(int.from_bytes(hashed, "little"))
        return torch.randn(self.width, generator=source) * _STD
