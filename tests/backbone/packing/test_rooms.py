"""Batches of a few sizes: what fills them, and what is read from them."""

import random

import pytest
import torch

from ptrun.backbone.base import as_bytes, tensors_of
from ptrun.backbone.packing import rooms
from ptrun.readout.base import Features, TokenRow, padded, unfilled

DRAWS = random.Random(3)


def drawn(rows, mean):
    return [max(1, min(round(DRAWS.lognormvariate(0, 0.45) * mean), 500)) for _ in range(rows)]


@pytest.mark.parametrize("rows", [1, 2, 8, 32])
@pytest.mark.parametrize("mean", [3, 12, 25, 128])
def test_the_passes_of_a_run_have_few_sizes(rows, mean):
    """A row of filling is no longer than a real one, or than the tokens that a prompt leaves."""
    sizes, tokens, fill = {}, 0, 0
    for _ in range(200):
        lengths = drawn(rows, mean)
        (room,) = rooms([lengths])
        assert room.width >= max(lengths)
        assert min(room.filling) >= 1 and max(room.filling) <= max(8, *lengths)
        key = room.width, len(room.filling), sum(lengths) + sum(room.filling)
        sizes[key] = sizes.get(key, 0) + 1
        tokens, fill = tokens + sum(lengths), fill + sum(room.filling)
    assert sum(sorted(sizes.values())[-6:]) >= 0.7 * 200
    assert fill <= (0.16 if rows > 2 else 0.35) * tokens


def test_members_apart_have_one_size_and_others_one_together():
    lengths = [drawn(16, 25) for _ in range(4)]
    apart, joint = rooms(lengths, apart=True), rooms(lengths)
    assert (
        len({sum(own) + sum(room.filling) for own, room in zip(lengths, apart, strict=True)}) == 1
    )
    assert [bool(room.filling) for room in joint] == [False, False, False, True]
    assert rooms([[40, 40], [3, 4]], apart=True) is None


def test_a_filled_batch_holds_the_rows_of_its_examples():
    rows = [TokenRow([5, 6, 7], reads=[0, 2], softs=[1]), TokenRow([8, 9], reads=[1], softs=[0])]
    features = [Features(str(i), [row], [i]) for i, row in enumerate(rows)]
    (room,), keys = rooms([[3, 2]]), torch.tensor([11, 12])
    plain, batch = padded(features, keys), padded(features, keys, room)
    assert sum(batch.lengths) == 5 + sum(room.filling) and batch.lengths[:2] == plain.lengths
    assert batch.mask.sum().item() == sum(batch.lengths) and len(batch) == 2 + len(room.filling)
    cells = [*zip(batch.reads.rows.tolist(), batch.reads.columns.tolist(), strict=True)]
    assert cells[:3] == [(0, 0), (0, 2), (1, 1)] and len(set(cells[3:])) == len(cells[3:])
    cut = unfilled(batch)
    for name in ("ids", "mask", "keys", "softs", "targets"):
        assert torch.equal(getattr(cut, name), getattr(plain, name)), name
    assert torch.equal(cut.reads.rows, plain.reads.rows) and cut.lengths == plain.lengths


def test_tensors_come_back_from_their_bytes():
    tensors = [torch.arange(5), torch.tensor([[True], [False]]), torch.zeros(0), torch.ones(3, 2)]
    for own, other in zip(tensors_of(torch.cat(as_bytes(tensors)), tensors), tensors, strict=True):
        assert own.dtype == other.dtype and torch.equal(own, other)
