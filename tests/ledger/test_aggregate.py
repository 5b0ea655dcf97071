import random
import statistics

import numpy as np
import pytest

from ptrun.ledger.cells import mean_of_best, mean_std


@pytest.mark.parametrize("ddof", [0, 1])
def test_mean_and_std_equal_numpys(ddof):
    for seed in range(1000):
        scores = [random.Random(seed * 100 + i).uniform(0, 100) for i in range(2 + seed % 9)]
        mean, std = mean_std(scores, ddof=ddof)
        assert mean == pytest.approx(np.mean(scores), abs=1e-9)
        assert std == pytest.approx(np.std(scores, ddof=ddof), abs=1e-9)


def test_one_run_has_no_sample_deviation():
    assert mean_std([80.0]) == (80.0, None)
    assert mean_std([80.0], ddof=0) == (80.0, 0.0)
    with pytest.raises(ValueError):
        mean_std([])


def test_best_3_of_10_ignores_collapsed_seeds():
    scores = [90.0, 91.0, 92.0, 20.0, 20.0, 50.0, 50.0, 23.0, 12.0, 89.0]
    assert mean_of_best(scores, keep=3) == 91.0
    assert mean_of_best(scores, keep=10) == statistics.fmean(scores)
