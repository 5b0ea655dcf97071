"""The order of training examples: a pure function of seed and epoch."""

import hashlib
from collections.abc import Sequence

import torch

from ptrun.readout.base import Features


def batches(
    features: Sequence[Features], size: int, seed: int, epoch: int, *, drop_last: bool = False
) -> list[list[int]]:
    """Return an epoch's batches of `size` indices, each of one data set.

    Examples of several data sets (MPT-2) are cut into batches set by set, and the batches are
    shuffled. `drop_last` leaves out smaller batches, unless there are no others.
    """
    sets: dict[str, list[int]] = {}
    for index in shuffled(len(features), seed, epoch):
        sets.setdefault(features[index].facts.get("set", ""), []).append(index)
    cut = [rows[i : i + size] for rows in sets.values() for i in range(0, len(rows), size)]
    if len(sets) > 1:
        cut = [cut[i] for i in shuffled(len(cut), seed, epoch)]
    whole = [batch for batch in cut if len(batch) == size]
    return whole if drop_last and whole else cut


def shuffled(count: int, seed: int, epoch: int) -> list[int]:
    """Return the order of examples in an epoch, a function of seed and epoch."""
    digest = hashlib.blake2b(f"order:{seed}:{epoch}".encode(), digest_size=7).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest, "little"))
    order: list[int] = torch.randperm(count, generator=generator).tolist()
    return order
