"""What a text is to a generator of prompts, M(x): a state of the frozen backbone, or word vectors.

IDPG, Wu et al. 2022, §3.
"""

import hashlib
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from ptrun.backbone.base import BackboneInput, Positions
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.prompt.glove import glove
from ptrun.readout.base import Batch, Features, Row

_OTHER_PASS = 3202034522624059733  # the two passes over a text draw different dropout


class FrozenPass:
    """M(x) `[B, H]`: [CLS] after a pass of the frozen backbone over the bare text.

    Without dropout that is one vector a row. `prepare` computes and keeps it with the backbone, in
    its precision and in the host's memory, so all members over it share what any of them saw. Only
    what `prepare` saw is kept: the engine cuts the same passes for the same examples, so resuming
    changes no bit. Beside other rows a vector may differ by rounding (1e-6 in fp32).

    Args:
        backbone: whose pass it is.
        dropout: whether the pass has dropout in training; it is then made anew in every step.
    """

    def __init__(self, backbone: PretrainedBackbone, *, dropout: bool):
        self.backbone, self.dropout = backbone, dropout
        self.width = backbone.shape.hidden_size

    def unprepared(self, features: Sequence[Features], *, training: bool) -> list[Features]:
        """Return the examples with a row that is not kept and could be."""
        if training and self.dropout:
            return []
        return [f for f in features if any(_key(row) not in self.backbone.kept for row in f.rows)]

    def prepare(self, batch: Batch) -> None:
        """Keep the vectors of a batch."""
        found = self._pass(batch, None).cpu()
        self.backbone.kept.update(zip(map(_key, batch.rows), found, strict=True))

    def __call__(self, batch: Batch) -> Tensor:
        """Return the vectors of a batch, kept or computed."""
        if batch.keys is not None and self.dropout:
            return self._pass(batch, batch.keys + _OTHER_PASS).float()
        kept = [self.backbone.kept.get(_key(row)) for row in batch.rows]
        known = [vector for vector in kept if vector is not None]
        if len(known) < len(batch):
            return self._pass(batch, None).float()
        return torch.stack(known).to(batch.ids.device).float()

    @torch.no_grad()
    def _pass(self, batch: Batch, keys: Tensor | None) -> Tensor:
        rows = torch.arange(len(batch), device=batch.ids.device)
        first = Positions(rows, torch.zeros_like(rows))
        bare = BackboneInput(
            ids=batch.ids, mask=batch.mask, types=batch.types, keys=keys, hidden_at=first
        )
        hidden = self.backbone.forward(bare).hidden
        assert hidden is not None
        return hidden


class MeanOfWords:
    """M(x) `[B, width]`: the average of word vectors over the text that a row's tokens spell.

    As in the released code the text is read back from the tokens, segments joined by a blank; so
    it is what the tokenizer left of it, under BERT's with blanks around punctuation.
    """

    def __init__(self, backbone: PretrainedBackbone, file: str):
        self.backbone, self.words = backbone, glove(file)
        self.width = self.words.width
        self._kept: dict[bytes, Tensor] = {}

    def __call__(self, batch: Batch) -> Tensor:
        """Return the vectors of a batch."""
        return torch.stack([self._of(row) for row in batch.rows]).to(batch.ids.device)

    def _of(self, row: Row) -> Tensor:
        key = _key(row)
        if key not in self._kept:
            self._kept[key] = self.words.mean(text_of(self.backbone.tokenizer(), row.ids))
        return self._kept[key]


def text_of(tokenizer: Any, ids: Sequence[int]) -> str:
    """Return the text between special tokens, pieces joined by a blank."""
    special = set(tokenizer.all_special_ids)
    runs = [list(run) for between, run in groupby(ids, special.__contains__) if not between]
    return " ".join(tokenizer.decode(run) for run in runs)


def _key(row: Row) -> bytes:
    return hashlib.blake2b(repr((row.ids, row.types)).encode(), digest_size=16).digest()
