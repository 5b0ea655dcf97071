"""The order of training examples: a pure function of seed and epoch."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ptrun.readout.base import Features
from ptrun.stored import Stored


@dataclass(frozen=True)
class Slices:
    """An order `[N]` as `count` batches of `size` indices; it takes 8 bytes an example."""

    order: Tensor
    size: int
    count: int

    def __len__(self) -> int:
        """Return the number of batches."""
        return self.count

    def __getitem__(self, place: int) -> list[int]:
        """Return a batch."""
        batch: list[int] = self.order[place * self.size : (place + 1) * self.size].tolist()
        return batch


def batches(
    features: Sequence[Features], size: int, seed: int, epoch: int, *, drop_last: bool = False
) -> list[list[int]] | Slices:
    """Return an epoch's batches of `size` indices, each of one data set.

    Examples of several data sets (MPT-2) are cut into batches set by set, and the batches are
    shuffled. `drop_last` leaves out smaller batches, unless there are no others.
    """
    order = shuffled(len(features), seed, epoch)
    sets: dict[str, list[int]] = {}
    if not isinstance(features, Stored):  # a file is of one data set
        for index in order.tolist():
            sets.setdefault(features[index].facts.get("set", ""), []).append(index)
    if len(sets) < 2:
        whole = len(order) // size
        return Slices(order, size, whole if drop_last and whole else -(-len(order) // size))
    cut = [rows[i : i + size] for rows in sets.values() for i in range(0, len(rows), size)]
    cut = [cut[i] for i in shuffled(len(cut), seed, epoch).tolist()]
    complete = [batch for batch in cut if len(batch) == size]
    return complete if drop_last and complete else cut


def shuffled(count: int, seed: int, epoch: int) -> Tensor:
    """Return the order `[count]` of examples in an epoch, a function of seed and epoch."""
    digest = hashlib.blake2b(f"order:{seed}:{epoch}".encode(), digest_size=7).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest, "little"))
    return torch.randperm(count, generator=generator)
