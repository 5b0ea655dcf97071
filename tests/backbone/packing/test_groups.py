"""Micro-batches: every row once, within the budget, and the least padded tokens."""

import random
from itertools import pairwise

import pytest

from ptrun.backbone.packing import OVERHEAD, cut, fill, overhead


def price(lengths, parts):
    return sum(len(p) * max(lengths[r] for r in p) + OVERHEAD for p in parts)


def random_parts(seed, group):
    """Return random lengths, a budget and the parts, after checking that every row comes once."""
    rng = random.Random(seed)
    lengths = [rng.randint(1, 60) for _ in range(rng.randint(1, 80))]
    budget = rng.choice([1, 50, 70, 300, 10_000])
    parts = group(lengths, budget)
    assert sorted(row for part in parts for row in part) == list(range(len(lengths)))
    return lengths, budget, parts


@pytest.mark.parametrize("seed", range(20))
def test_every_row_comes_once_and_no_part_breaks_the_budget(seed):
    lengths, budget, parts = random_parts(seed, cut)
    for part in parts:
        assert len(part) == 1 or len(part) * max(lengths[row] for row in part) <= budget


@pytest.mark.parametrize("seed", range(10))
def test_the_cuts_are_the_cheapest_of_all(seed):
    rng = random.Random(seed)
    lengths = [rng.choice([3, 9, 40, 90, 200]) for _ in range(12)]
    ordered = sorted(lengths)
    edges = [i for i in range(1, 12) if ordered[i] != ordered[i - 1]]
    best = min(
        price(ordered, _parts(12, [e for k, e in enumerate(edges) if chosen >> k & 1]))
        for chosen in range(2 ** len(edges))
    )
    assert price(lengths, cut(lengths, 10_000)) == best


def test_equal_lengths_keep_their_order_and_have_no_padding():
    assert cut([5] * 6, 15) == [[0, 1, 2], [3, 4, 5]]


def _parts(count, starts):
    edges = [0, *starts, count]
    return [list(range(a, b)) for a, b in pairwise(edges)]


def test_no_rows_make_no_part():
    assert cut([], 100) == []
    assert fill([], [], 100) == []


@pytest.mark.parametrize("seed", range(20))
def test_packed_micro_batches_are_within_the_budget_and_about_equal(seed):
    lengths, budget, parts = random_parts(seed, lambda own, most: fill(own, [0] * len(own), most))
    ordered = [lengths[row] for part in parts for row in part]
    assert ordered == sorted(lengths)
    sizes = [sum(lengths[row] for row in part) for part in parts]
    assert all(size <= budget for size, part in zip(sizes, parts, strict=True) if len(part) > 1)
    if budget > sum(lengths):
        assert len(parts) == 1
    if budget == 300:
        assert len(parts) <= -(-sum(lengths) // budget) + 1


def test_the_rows_of_a_member_stay_together():
    lengths, owners = [5, 9, 5, 2, 9, 2], [1, 0, 0, 1, 1, 0]
    assert fill(lengths, owners, 16) == [[5, 2, 1], [3, 0, 4]]
    assert fill(lengths, owners, 100) == [[5, 2, 1, 3, 0, 4]]


def test_a_gpu_takes_fewer_passes_than_a_cpu():
    """T5-XXL's shape; 15 passes a step of 16 rows took 4.8 s on an H100."""
    lengths = [140 + 7 * row for row in range(16)]
    on = {d: len(cut(lengths, 16_384, overhead(48, 4096, d))) for d in ("cpu", "cuda")}
    assert on["cpu"] == 16
    assert on["cuda"] <= 3


def test_a_row_of_a_small_model_costs_a_gpu_less_than_its_launches():
    lengths = [20, 60, 100, 128]
    assert cut(lengths, 16_384, overhead(12, 768, "cuda")) == [[0, 1, 2, 3]]
