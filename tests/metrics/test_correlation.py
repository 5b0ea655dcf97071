from math import nan

import pytest

from ptrun.metrics import pearson, pearson_and_spearman, spearman


def test_gold_scores_100_and_its_negative_minus_100():
    golds = [0.0, 1.2, 3.4, 5.0, 3.4]
    assert pearson_and_spearman(golds, golds) == pytest.approx(100.0)
    assert pearson_and_spearman([-g for g in golds], golds) == pytest.approx(-100.0)


@pytest.mark.parametrize("constant", [0.0, 0.1, 2.7])
def test_constant_predictions_score_0(constant):
    assert pearson_and_spearman([constant] * 3, [1.0, 2.0, 4.0]) == 0.0


def test_what_has_no_correlation_is_refused():
    with pytest.raises(ValueError, match=r"\(nan, 1.0\) must be finite"):
        pearson([nan, 2.0], [1.0, 2.0])
    with pytest.raises(ValueError, match="at least two pairs"):
        spearman([1.0], [1.0])
