"""A read-out turns examples into rows of tokens, and what the backbone says there into answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ptrun.backbone.base import BackboneInput, BackboneOutput, Positions
from ptrun.types import Example, Prediction


@dataclass(frozen=True)
class Features:
    """One row of input: its tokens, the positions it is read at, and what is right there.

    Args:
        id: the example's id.
        ids: token ids, special tokens included.
        types: segment ids, or None.
        reads: token positions that are read.
        targets: label index for each read; the loss has one term for each.
        size: parts of the answer (words of a sentence); 1 for a plain label.
        parts: which part of the answer each read is for.
    """

    id: str
    ids: list[int]
    types: list[int] | None
    reads: list[int]
    targets: list[int]
    size: int
    parts: list[int]


@dataclass(frozen=True)
class Batch:
    """Rows padded to one length, on a device; letters as in `ptrun.backbone.base`."""

    features: Sequence[Features]
    ids: Tensor
    mask: Tensor
    types: Tensor | None
    reads: Positions
    targets: Tensor
    keys: Tensor | None

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.features)


def collate(features: Sequence[Features], keys: Tensor | None, device: torch.device) -> Batch:
    """Pad rows on the right to the longest and move them to a device.

    `keys [B]` are dropout keys; None means evaluation.
    """
    width = max(len(f.ids) for f in features)
    ids = [f.ids + [0] * (width - len(f.ids)) for f in features]
    mask = [[True] * len(f.ids) + [False] * (width - len(f.ids)) for f in features]
    types = [f.types + [0] * (width - len(f.types)) for f in features if f.types is not None]
    rows = [row for row, f in enumerate(features) for _ in f.reads]
    columns = [column for f in features for column in f.reads]
    targets = [target for f in features for target in f.targets]
    return Batch(
        features=features,
        ids=_indices(ids, device),
        mask=torch.tensor(mask, dtype=torch.bool, device=device),
        types=_indices(types, device) if types else None,
        reads=Positions(_indices(rows, device), _indices(columns, device)),
        targets=_indices(targets, device),
        keys=None if keys is None else keys.to(device),
    )


def _indices(values: list[int] | list[list[int]], device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=torch.long, device=device)


class Readout(Protocol):
    """How an answer is read; a method owns one.

    `reads_decoder` says whether an encoder-decoder answers through its decoder.
    """

    reads_decoder: bool

    def encode(self, examples: Sequence[Example], room: int) -> list[Features]:
        """Return one row an example, at most `room` tokens long."""

    def ask(self, given: BackboneInput, at: Positions) -> BackboneInput:
        """Return an input that also asks for what is read at these positions."""

    def loss(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return the sum `[]` of one loss term a target; the engine divides by their number."""

    def decode(self, output: BackboneOutput, batch: Batch) -> list[Prediction]:
        """Return an answer for each row."""
