"""M(x), the input of IDPG's prompt generators: a state of the frozen backbone, or word vectors.

Wu et al. 2022, §3.
"""

import hashlib
import os
import string
from collections.abc import Sequence
from functools import cache, cached_property
from itertools import groupby
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ptrun.backbone.base import BackboneInput, Positions, moved
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from ptrun.readout.base import Batch, Features, TokenRow

_OTHER_PASS = 3202034522624059733  # gives the two passes over a text different dropout


class FrozenPass:
    """M(x) `[B, H]`: the [CLS] state after a pass of the frozen backbone over the bare text.

    Without dropout `prepare` stores the vectors with the backbone, in its precision and in host
    memory, for all members that share it. Other calls store nothing: next to other rows a vector
    may differ by rounding (1e-6 in fp32). The engine cuts the same passes for the same examples,
    so a resumed run gets the same bits.

    Args:
        backbone: frozen.
        dropout: use dropout in training; every step then computes the vectors anew.

    >>> from ptrun.testing import read
    >>> method, batch, output = read("method=idpg", "method.order=4")
    >>> method.encoder(batch).shape  # [B, H]
    torch.Size([2, 128])
    """

    def __init__(self, backbone: PretrainedBackbone, *, dropout: bool):
        self.backbone, self.dropout = backbone, dropout
        self.width = backbone.shape.hidden_size

    def unprepared(self, features: Sequence[Features], *, training: bool) -> list[Features]:
        """Return the examples with a row that can be stored and is not."""
        if training and self.dropout:
            return []
        return [f for f in features if any(_key(row) not in self.backbone.kept for row in f.rows)]

    def prepare(self, batch: Batch) -> None:
        """Compute and store the vectors of a batch."""
        vectors = self._pass(batch, None).cpu()
        self.backbone.kept.update(zip(map(_key, batch.rows), vectors, strict=True))

    def __call__(self, batch: Batch) -> Tensor:
        """Return the vectors of a batch, stored or computed."""
        if batch.keys is not None and self.dropout:
            return self._pass(batch, batch.keys + _OTHER_PASS).float()
        keys, stored = [_key(row) for row in batch.rows], self.backbone.kept
        if any(key not in stored for key in keys):
            return self._pass(batch, None).float()
        return moved(torch.stack([stored[key] for key in keys]), batch.ids.device).float()

    @torch.no_grad()
    def _pass(self, batch: Batch, keys: Tensor | None) -> Tensor:
        rows = torch.arange(len(batch), device=batch.ids.device)
        starts = Positions(rows, torch.zeros_like(rows))
        bare = BackboneInput(
            ids=batch.ids,
            mask=batch.mask,
            lengths=batch.lengths,
            types=batch.types,
            keys=keys,
            hidden_at=starts,
        )
        hidden = self.backbone.forward(bare).hidden
        assert hidden is not None
        return hidden


class MeanOfWords:
    """M(x) `[B, width]`: the average of word vectors over the text of a row.

    As in the released code the text is decoded from the tokens, segments joined by a space. BERT's
    tokenizer adds spaces around punctuation.

    >>> from pathlib import Path
    >>> from ptrun.testing import read
    >>> from ptrun.method.instance import MeanOfWords
    >>> _ = Path("words.txt").write_text("good 0.1 0.2")
    >>> method, batch, output = read("method=fine_tuning")
    >>> MeanOfWords(method.backbone, "words.txt")(batch).shape  # [B, width]
    torch.Size([2, 2])
    """

    def __init__(self, backbone: PretrainedBackbone, file: str):
        self.backbone, self.words = backbone, glove(file)
        self.width = self.words.width
        self._kept: dict[bytes, Tensor] = {}

    def __call__(self, batch: Batch) -> Tensor:
        """Return the vectors of a batch."""
        keys, tokenizer = [_key(row) for row in batch.rows], self.backbone.tokenizer()
        for key, row in zip(keys, batch.rows, strict=True):
            if key not in self._kept:
                self._kept[key] = self.words.mean(text_of(tokenizer, row.ids))
        return moved(torch.stack([self._kept[key] for key in keys]), batch.ids.device)


def text_of(tokenizer: Any, ids: Sequence[int]) -> str:
    """Return the text between special tokens, joined by spaces."""
    special = set(tokenizer.all_special_ids)
    runs = [list(run) for between, run in groupby(ids, special.__contains__) if not between]
    return " ".join(tokenizer.decode(run) for run in runs)


def _key(row: TokenRow) -> bytes:
    return hashlib.blake2b(repr((row.ids, row.types)).encode(), digest_size=16).digest()


# Word vectors from a local text file of `word v1 v2 ...` lines, and a text as their average.
#
# IDPG, Wu et al. 2022, uses glove.6B.300d.txt: split at blanks, remove ASCII punctuation, lower the
# case, take the mean over known words. A text without known words gets a vector from N(0, 0.6²).
# The authors draw it anew each time; here it depends on the text alone.

_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_STD = 0.6


def glove(file: str) -> "_Glove":
    """Return a file's vectors; callers that name the same file share them."""
    path = Path(os.path.expanduser(file))
    if not os.path.isfile(path):
        raise UserError(
            f"method.glove={file}: no such file; give a text file of `word v1 v2 ...` lines, such "
            "as glove.6B.300d.txt."
        )
    status = path.stat()
    return _opened(path.resolve(), status.st_size, status.st_mtime_ns)


@cache
def _opened(path: Path, _size: int, _changed: int) -> "_Glove":
    return _Glove(path)


class _Glove:
    """Vectors by word; memory holds the offset of each word, and the vectors looked up so far."""

    def __init__(self, path: Path):
        self.path = path
        with path.open("rb") as opened:
            self.width = len(opened.readline().split()) - 1
        if self.width < 1:
            raise UserError(f"method.glove={path}: line 1 has no numbers after its word.")
        self._known: dict[str, Tensor | None] = {}

    def digest(self) -> str:
        """Return a fingerprint of the content."""
        with self.path.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()[:16]

    @cached_property
    def _starts(self) -> dict[bytes, int]:
        """The place of each word's line in the file."""
        start, starts = 0, dict[bytes, int]()
        with self.path.open("rb") as opened:
            for line in opened:
                starts.setdefault(line.partition(b" ")[0], start)
                start += len(line)
        return starts

    def mean(self, text: str) -> Tensor:
        """Return the average `[width]` over the words that have a vector."""
        words = [word.translate(_NO_PUNCTUATION).lower() for word in text.split()]
        vectors = [vector for word in words if (vector := self.vector(word)) is not None]
        if vectors:
            return torch.stack(vectors).mean(dim=0)
        hashed = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=7).digest()
        source = torch.Generator().manual_seed(int.from_bytes(hashed, "little"))
        return torch.randn(self.width, generator=source) * _STD

    def vector(self, word: str) -> Tensor | None:
        """Return a word's vector `[width]`, or None."""
        if word in self._known:
            return self._known[word]
        start = self._starts.get(word.encode("utf-8", "surrogatepass"))
        if start is None:
            self._known[word] = None
            return None
        with self.path.open("rb") as opened:
            opened.seek(start)
            rest = opened.readline().decode("utf-8", "replace").partition(" ")[2]
        where = f"method.glove={self.path}: the vector of {word!r}"
        try:
            numbers = [float(number) for number in rest.split()]
        except ValueError as error:
            raise UserError(f"{where}: {error}.") from error
        if len(numbers) != self.width or not all(map(isfinite, numbers)):
            raise UserError(f"{where} is {rest[:40].strip()!r}; line 1 has {self.width} numbers.")
        self._known[word] = torch.tensor(numbers)
        return self._known[word]
