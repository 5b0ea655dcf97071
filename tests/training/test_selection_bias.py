from math import inf, sqrt

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from ptrun.metrics import expected_maximum, selection_bias


@pytest.mark.parametrize("n", [1, 2, 3, 5, 10, 40, 1000])
def test_the_expected_maximum_equals_scipys_integral(n):
    integral, _ = quad(lambda x: x * n * norm.pdf(x) * norm.cdf(x) ** (n - 1), -inf, inf)
    assert expected_maximum(n) == pytest.approx(integral, abs=1e-7)


def simulated(n, examples, truth_std, rounds=4000):
    """Return the mean estimate, and the mean lead of the winner's dev score over its truth."""
    rng = np.random.default_rng(0)
    truth = np.clip(rng.normal(75, truth_std, (rounds, n)), 1, 99)
    dev = 100 * rng.binomial(examples, truth / 100) / examples
    first = np.argmax(dev + rng.uniform(0, 1e-6, dev.shape), axis=1)
    rows = np.arange(rounds)
    optimism = (dev[rows, first] - truth[rows, first]).mean()
    return np.mean([selection_bias(list(row), examples) for row in dev]), optimism


@pytest.mark.slow
@pytest.mark.parametrize(("n", "examples"), [(5, 200), (20, 200), (20, 1000)])
@pytest.mark.parametrize("truth_std", [0.0, 3.0, 8.0])
def test_the_estimate_is_near_a_simulated_choice(monkeypatch, n, examples, truth_std):
    table = {n: expected_maximum(n)}
    monkeypatch.setattr("ptrun.metrics.expected_maximum", table.__getitem__)
    estimate, optimism = simulated(n, examples, truth_std)
    assert estimate == pytest.approx(optimism, rel=0.2, abs=0.1)


def test_luck_grows_with_candidates_and_falls_with_examples():
    few, many = [70.0, 72.0] * 2, [70.0, 72.0] * 20
    assert selection_bias(many, 32) > selection_bias(few, 32) > selection_bias(few, 1000) > 0


def test_there_is_no_luck_without_a_choice_or_without_noise():
    assert selection_bias([70.0], 32) == 0.0
    assert selection_bias([100.0, 100.0], 32) == 0.0


def test_a_clear_lead_counts_more_than_its_noise():
    scores, examples = [60.0, 62.0, 90.0], 50
    mean, spread = np.mean(scores), np.var(scores, ddof=1)
    noise = mean * (100 - mean) / examples
    winner = mean + (1 - noise / spread) * (90 - mean)
    expected = expected_maximum(3) * winner * (100 - winner) / examples / sqrt(spread)
    assert selection_bias(scores, examples) == pytest.approx(expected, rel=1e-12)


def test_the_ends_of_the_scale_and_one_example_are_allowed():
    assert selection_bias([0.0, 100.0], 1) >= 0.0 and selection_bias([50.0, 50.0], 1) > 0.0


def test_ten_equal_candidates_on_32_examples_lead_by_twelve_points():
    assert selection_bias([75.0] * 10, 32) == pytest.approx(1.53875 * sqrt(75 * 25 / 32), abs=1e-3)


@pytest.mark.parametrize(
    ("scores", "examples", "message"),
    [
        ([], 32, "dev_scores is empty; give at least 1 score"),
        ([101.0], 32, "dev score 101.0 is outside 0-100"),
        ([float("nan")], 32, "dev score nan"),
        ([50.0], 0, "examples is 0"),
    ],
)
def test_what_cannot_be_estimated_is_named(scores, examples, message):
    with pytest.raises(ValueError, match=message):
        selection_bias(scores, examples)
