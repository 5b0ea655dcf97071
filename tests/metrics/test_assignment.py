import itertools

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from ptrun.metrics import best_assignment
from tests.metrics.corruption import rounds


def total(weights, pairs):
    return sum(weights[row][column] for row, column in pairs)


def test_the_total_equals_scipys_for_any_shape():
    for rng in rounds():
        rows, columns = rng.randint(1, 9), rng.randint(1, 9)
        value = rng.choice([rng.random, lambda rng=rng: rng.choice([0.0, 0.5, 2 / 3, 1.0])])
        weights = [[value() for _ in range(columns)] for _ in range(rows)]
        pairs = best_assignment(weights)
        assert len(pairs) == len({r for r, _ in pairs}) == len({c for _, c in pairs})
        assert len(pairs) == min(rows, columns) and pairs == sorted(pairs)
        best = np.array(weights)[linear_sum_assignment(weights, maximize=True)].sum()
        assert total(weights, pairs) == pytest.approx(best, abs=1e-9)


def test_the_total_equals_a_search_over_all_orders():
    for rng in itertools.islice(rounds(), 200):
        weights = [[rng.random() for _ in range(5)] for _ in range(5)]
        orders = itertools.permutations(range(5))
        best = max(total(weights, enumerate(order)) for order in orders)
        assert total(weights, best_assignment(weights)) == pytest.approx(best, abs=1e-9)


def test_nothing_pairs_with_nothing():
    assert best_assignment([]) == best_assignment([[], []]) == []
