import random
import statistics

import numpy as np
import pytest

from ptrun.ledger.cells import (
    best_on_dev,
    majority_vote,
    mean_of_best,
    mean_std,
    mean_vote,
    near_best,
)


@pytest.mark.parametrize("ddof", [0, 1])
def test_mean_and_std_equal_numpys(ddof):
    for seed in range(1000):
        scores = [random.Random(seed * 100 + i).uniform(0, 100) for i in range(2 + seed % 9)]
        spread = mean_std(scores, ddof=ddof)
        assert spread.mean == pytest.approx(np.mean(scores), abs=1e-9)
        assert spread.std == pytest.approx(np.std(scores, ddof=ddof), abs=1e-9)
        assert (spread.n, spread.ddof) == (len(scores), ddof)


def test_one_run_has_no_sample_deviation():
    assert mean_std([80.0]).std is None
    assert mean_std([80.0], ddof=0).std == 0.0


def test_best_3_of_10_ignores_collapsed_seeds():
    scores = [90.0, 91.0, 92.0, 20.0, 20.0, 50.0, 50.0, 23.0, 12.0, 89.0]
    assert mean_of_best(scores, keep=3) == 91.0
    assert mean_of_best(scores, keep=10) == statistics.fmean(scores)


def test_seeds_near_the_best_are_counted_up_to_two_points():
    assert near_best([90.0, 92.0, 89.99, 20.0]) == 2
    assert near_best([90.0, 92.0, 89.99, 20.0], points=72.0) == 4


@pytest.mark.parametrize("keep", [0, 3])
def test_a_number_to_keep_that_is_not_there_is_refused(keep):
    with pytest.raises(ValueError, match=f"keep is {keep}; there are 2 scores"):
        mean_of_best([1.0, 2.0], keep=keep)


def test_best_on_dev_reports_test_of_that_run_whatever_the_order():
    assert best_on_dev([60.0, 70.0, 65.0], [95.0, 80.0, 99.0]) == 80.0
    assert best_on_dev([70.0, 70.0, 65.0], [90.0, 80.0, 99.0]) == 85.0
    assert best_on_dev([65.0, 70.0, 70.0], [99.0, 80.0, 90.0]) == 85.0


def test_votes_take_the_commonest_answer_and_the_first_seeds_at_a_tie():
    seeds = [["yes", "no", "b"], ["yes", "no", "a"], ["no", "yes", "c"]]
    assert majority_vote(seeds) == ["yes", "no", "b"]
    assert majority_vote([["a"], ["b"], ["b"], ["a"], ["c"]]) == ["a"]


def test_a_vote_of_five_seeds_on_two_classes_equals_the_mean_above_one_half():
    rng = random.Random(0)
    seeds = [[rng.randrange(2) for _ in range(1000)] for _ in range(5)]
    assert majority_vote(seeds) == [int(mean > 0.5) for mean in mean_vote(seeds)]


def test_numbers_are_averaged_over_seeds():
    assert mean_vote([[1.0, 2.0], [3.0, 2.5]]) == [2.0, 2.25]


@pytest.mark.parametrize(
    ("rule", "runs"),
    [
        (mean_std, [[]]),
        (best_on_dev, [[], []]),
        (majority_vote, [[["a"], ["a", "b"]]]),
        (mean_vote, [[[1.0], [1.0, 2.0]]]),
        (best_on_dev, [[1.0], [1.0, 2.0]]),
    ],
)
def test_nothing_and_runs_that_do_not_match_are_no_number(rule, runs):
    with pytest.raises(ValueError):
        rule(*runs)
