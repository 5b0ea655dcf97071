"""M(x), the input of IDPG's prompt generators: a state of the frozen backbone, or word vectors.

Wu et al. 2022, §3.
"""

import hashlib
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from ptrun.backbone.base import BackboneInput, Positions, moved
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.prompt.glove import glove
from ptrun.readout.base import Batch, Features, Row

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
        first = Positions(rows, torch.zeros_like(rows))
        bare = BackboneInput(
            ids=batch.ids,
            mask=batch.mask,
            lengths=batch.lengths,
            types=batch.types,
            keys=keys,
            hidden_at=first,
        )
        hidden = self.backbone.forward(bare).hidden
        assert hidden is not None
        return hidden


class MeanOfWords:
    """M(x) `[B, width]`: the average of word vectors over the text of a row.

    As in the released code the text is decoded from the tokens, segments joined by a space. BERT's
    tokenizer adds spaces around punctuation.
    """

    def __init__(self, backbone: PretrainedBackbone, file: str):
        self.backbone, self.words = backbone, glove(file)
        self.width = self.words.width
        self._kept: dict[bytes, Tensor] = {}

    def __call__(self, batch: Batch) -> Tensor:
        """Return the vectors of a batch."""
        return moved(torch.stack([self._of(row) for row in batch.rows]), batch.ids.device)

    def _of(self, row: Row) -> Tensor:
        key = _key(row)
        if key not in self._kept:
            self._kept[key] = self.words.mean(text_of(self.backbone.tokenizer(), row.ids))
        return self._kept[key]


def text_of(tokenizer: Any, ids: Sequence[int]) -> str:
    """Return the text between special tokens, joined by spaces."""
    special = set(tokenizer.all_special_ids)
    runs = [list(run) for between, run in groupby(ids, special.__contains__) if not between]
    return " ".join(tokenizer.decode(run) for run in runs)


def _key(row: Row) -> bytes:
    return hashlib.blake2b(repr((row.ids, row.types)).encode(), digest_size=16).digest()
