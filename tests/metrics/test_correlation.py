from math import nan

import pytest
from scipy.stats import pearsonr, spearmanr

from ptrun.metrics import pearson, pearson_and_spearman, spearman
from tests.metrics.corruption import rounds


def test_gold_scores_100_and_its_negative_minus_100():
    golds = [0.0, 1.2, 3.4, 5.0, 3.4]
    assert pearson_and_spearman(golds, golds) == pytest.approx(100.0)
    assert pearson_and_spearman([-g for g in golds], golds) == pytest.approx(-100.0)


@pytest.mark.slow
def test_coefficients_equal_scipy_with_ties():
    compared = 0
    for rng in rounds():
        golds = [rng.randrange(26) / 5 for _ in range(rng.randint(2, 40))]
        guesses = [round(g + rng.gauss(0, 2), rng.choice([0, 1, 9])) for g in golds]
        if len(set(golds)) == 1 or len(set(guesses)) == 1:
            assert pearson_and_spearman(guesses, golds) == 0.0
            continue
        line, rank = 100 * pearsonr(golds, guesses)[0], 100 * spearmanr(golds, guesses)[0]
        assert pearson(guesses, golds) == pytest.approx(line, abs=1e-9)
        assert spearman(guesses, golds) == pytest.approx(rank, abs=1e-9)
        both = pearson_and_spearman(guesses, golds)
        assert both == pytest.approx((line + rank) / 2, abs=1e-9)
        compared += 1
    assert compared > 950


@pytest.mark.parametrize("constant", [0.0, 0.1, 2.7])
def test_constant_predictions_score_0(constant):
    assert pearson_and_spearman([constant] * 3, [1.0, 2.0, 4.0]) == 0.0


def test_what_has_no_correlation_is_refused():
    with pytest.raises(ValueError, match=r"\(nan, 1.0\) must be finite"):
        pearson([nan, 2.0], [1.0, 2.0])
    with pytest.raises(ValueError, match="at least two pairs"):
        spearman([1.0], [1.0])
