"""Statistics of seeds against closed forms, and what no interval may say."""

import random
import statistics

import numpy as np
import pytest

from ptrun.papers.ours import interval, statistic_of, verdict
from ptrun.reporting.cells import mean_of_best, mean_std
from tests.tiers import tiered


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


@pytest.mark.parametrize(
    ("name", "value"), [("mean", 3.5), ("single", 3.5), ("max", 6.0), ("best_3", 5.0)]
)
def test_a_statistic_is_what_its_name_says(name, value):
    assert statistic_of(name)([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) == value


def test_one_seed_has_no_interval_and_no_verdict():
    assert interval([90.0], "mean", 90.0, None, 5) is None
    assert verdict(None) == "not comparable"


STUDENT = {2: 4.303, 4: 2.776, 7: 2.365, 8: 2.306}  # 97.5 % points by degrees of freedom


def test_a_single_draw_has_students_prediction_interval():
    found = interval([90.0, 92.0, 94.0], "single", 91.0, None, 3)
    half = STUDENT[2] * 2 * (1 + 1 / 3) ** 0.5
    assert found.difference == pytest.approx(1.0)
    assert (found.low, found.high) == pytest.approx((1 - half, 1 + half), rel=0.03)
    assert verdict(found) == "within"


def test_a_mean_without_deviation_is_of_as_uncertain_a_mean():
    scores = [90.1, 90.9, 91.3, 89.7, 90.4, 90.6, 90.2, 90.8]
    found = interval(scores, "mean", 88.0, None, 8)
    assert found == interval(scores, "mean", 88.0, None, 8)
    half = STUDENT[7] * statistics.stdev(scores) * (2 / 8) ** 0.5
    own = statistics.fmean(scores) - 88
    assert (found.low, found.high) == pytest.approx((own - half, own + half), abs=0.02)
    assert verdict(found) == "above" and verdict(interval(scores, "mean", 95, None, 8)) == "below"


def test_a_printed_deviation_is_students_test_of_two_means():
    scores = [90.1, 90.9, 91.3, 89.7, 90.4]
    found = interval(scores, "mean", 91.5, 0.6, 5)
    half = STUDENT[8] * ((statistics.variance(scores) + 0.6**2) / 5) ** 0.5
    own = statistics.fmean(scores) - 91.5
    assert (found.low, found.high) == pytest.approx((own - half, own + half), abs=0.02)
    assert verdict(found) == "below"
    assert verdict(interval(scores, "mean", 91.5, 3.0, 5)) == "within"


def test_an_exact_number_has_students_interval_of_one_mean():
    scores = [1.0, 2.0, 3.0, 4.0, 5.0]
    found = interval(scores, "mean", 0.0, None, 0)
    half = STUDENT[4] * statistics.stdev(scores) / 5**0.5
    assert (found.low, found.high) == pytest.approx((3 - half, 3 + half), abs=0.05)


CELLS = [("single", 3), ("single", 5), ("single", 10), ("mean", 3), ("mean", 5), ("max", 5)]
CELLS += [("max", 10), ("best_3", 10), ("printed mean", 3), ("printed mean", 5)]
CORE = [("single", 5), ("best_3", 10)]
DRAWS = {
    "normal": lambda rng: rng.gauss(80, 1.5),
    "of 250 examples": lambda rng: round(sum(rng.random() < 0.8 for _ in range(250)) / 2.5, 1),
}


TRIED = [(*cell, "normal") for cell in CELLS] + [(*cell, "of 250 examples") for cell in CELLS[1::3]]


@pytest.mark.parametrize(
    ("name", "seeds", "draw"), tiered(TRIED, lambda name, seeds, _: (name, seeds) in CORE)
)
def test_equal_sides_get_at_most_six_false_verdicts_of_a_hundred(name, seeds, draw):
    rng = random.Random(7)
    pool = [DRAWS[draw](rng) for _ in range(5000)]
    kind, false, trials = name.split()[-1], 0, 4000
    for _ in range(trials):
        ours, theirs = rng.choices(pool, k=seeds), rng.choices(pool, k=seeds)
        paper = theirs[0] if kind == "single" else statistic_of(kind)(theirs)
        std = statistics.stdev(theirs) if name.startswith("printed") else None
        found = interval(ours, kind, round(paper, 1), std, seeds, unit=0.1)
        false += verdict(found) != "within"
    assert 0.02 <= false / trials <= 0.06


def test_a_real_difference_is_still_seen():
    rng = random.Random(7)
    above = 0
    for _ in range(500):
        ours = [rng.gauss(88, 1.5) for _ in range(5)]
        above += verdict(interval(ours, "single", rng.gauss(80, 1.5), None, 5)) == "above"
    assert above > 450


def test_what_was_rounded_is_not_another_number():
    scores = [31.26, 31.26, 31.26]
    assert verdict(interval(scores, "mean", 31.3, None, 3)) == "below"
    assert verdict(interval(scores, "mean", 31.3, None, 3, unit=0.1)) == "within"
