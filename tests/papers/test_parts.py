"""Parts side by side: how targets are joined, and what cannot be."""

import pytest
import torch

from ptrun.errors import UserError
from ptrun.papers.parts import Shards, Target


def shards(*parts):
    return Shards([{"x": part} for part in parts])


def test_pieces_are_joined_part_by_part_and_one_below_the_other():
    held = shards(*torch.arange(12.0).view(2, 6, 1))  # each: two rows of Q, of K, of V
    whole = Target("y", "x", (12, 1), axis=0, pieces=3)
    keys = Target("k", "x", (4, 1), axis=0, pieces=3, piece=1)
    held.check([whole, keys], model="this")
    assert held.join(whole).flatten().tolist() == [0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11]
    assert held.join(keys).flatten().tolist() == [2, 3, 8, 9]


def test_a_transposed_target_is_joined_first():
    left, right = torch.arange(6.0).view(3, 2), torch.arange(3.0).view(3, 1)
    held = shards(left, left + 10)
    target = Target("y", "x", (3, 4), axis=1, transposed=True)
    held.check([target], model="this")
    assert target.model_shape == (4, 3)
    assert torch.equal(held.join(target), torch.cat([left, left + 10], 1).T)
    assert shards(right).join(Target("y", "x", (3, 1))).shape == (3, 1)


def test_parts_that_cut_through_a_piece_are_refused():
    held = shards(*torch.zeros(3, 64, 2))
    with pytest.raises(UserError, match="3 equal pieces"):
        held.check([Target("y", "x", (192, 2), axis=0, pieces=3)], model="this")
