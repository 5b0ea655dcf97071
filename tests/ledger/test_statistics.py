"""Statistics of seeds against closed forms, and what no interval may say."""

import statistics

import pytest

from ptrun.ledger.statistics import interval, paired, statistic_of, verdict


@pytest.mark.parametrize(
    ("name", "value"), [("mean", 3.5), ("single", 3.5), ("max", 6.0), ("best_3", 5.0)]
)
def test_a_statistic_is_what_its_name_says(name, value):
    assert statistic_of(name)([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) == value


def test_one_seed_has_no_interval_and_no_verdict():
    assert interval([90.0], "mean", 90.0, None, 5) is None
    assert verdict(None) == "not comparable"


def test_few_seeds_have_students_interval():
    found = interval([90.0, 92.0, 94.0], "mean", 91.0, None, 3)
    half = 4.303 * 2 / 3**0.5
    assert found.difference == pytest.approx(1.0)
    assert (found.low, found.high) == pytest.approx((1 - half, 1 + half))
    assert verdict(found) == "within"


def test_many_seeds_are_resampled_and_always_alike():
    scores = [90.1, 90.9, 91.3, 89.7, 90.4, 90.6, 90.2, 90.8]
    found = interval(scores, "mean", 88.0, None, 8)
    assert found == interval(scores, "mean", 88.0, None, 8)
    own = statistics.fmean(scores)
    student = 2.365 * statistics.stdev(scores) / len(scores) ** 0.5
    assert found.low == pytest.approx(own - 88 - student, abs=0.1)
    assert found.high == pytest.approx(own - 88 + student, abs=0.1)
    assert verdict(found) == "above" and verdict(interval(scores, "mean", 95, None, 8)) == "below"


def test_what_the_paper_does_not_know_widens_the_interval():
    scores = [90.1, 90.9, 91.3, 89.7, 90.4]
    alone, printed = (interval(scores, "mean", 91.5, std, 5) for std in (None, 3.0))
    assert verdict(alone) == "below" and verdict(printed) == "within"
    assert printed.difference == alone.difference


def test_what_was_rounded_is_not_another_number():
    scores = [31.26, 31.26, 31.26]
    assert verdict(interval(scores, "mean", 31.3, None, 3)) == "below"
    assert verdict(interval(scores, "mean", 31.3, None, 3, unit=0.1)) == "within"


def test_pairs_are_told_apart_by_sign_flips():
    first, second = [3.0, 4.0, 5.0, 6.0, 7.0], [1.0, 2.0, 3.0, 4.0, 5.0]
    assert paired(first, second) == 2 / 2**5
    assert paired(first, first) == 1.0
    assert paired(first[:3], second[:3]) is None, "three pairs can never tell anything"
