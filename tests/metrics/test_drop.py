import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from ptrun.metrics import best_assignment, drop_scores, normalise_answer
from tests.metrics.corruption import rounds


def test_gold_scores_100_in_any_order():
    golds = [["the Ore", "tin sea"], ["12 gulfs"]]
    assert drop_scores([["tin sea", "ore"], ["12.0 gulfs"]], golds) == {"em": 100.0, "f1": 100.0}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The well-made ORE.", "well made ore"),
        ("1,200 tins", "1200.0 tins"),
        ("12 a 12.50", "12.0 12.5"),
        ("$7 -3", "7.0 3.0"),
        ("an a the", ""),
    ],
)
def test_normalisation_splits_on_hyphens_and_writes_numbers_as_floats(text, expected):
    assert normalise_answer(text) == expected


@pytest.mark.parametrize(
    ("guesses", "golds", "em", "f1"),
    [
        (["ore"], ["ore", "tin"], 0, 50),
        (["ore", "tin", "sea"], ["ore"], 0, 33),
        (["7 tins"], ["8 tins"], 0, 0),
        (["8 red tins"], ["8 tins"], 0, 80),
        (["tins"], ["red tins"], 0, 67),
        (["ore", "ore"], ["ore", "tin"], 0, 50),
        (["ore", "ore", "tin"], ["ore", "tin", "tin"], 100, 67),
        ([], ["ore"], 0, 0),
        (["b c d v w"], ["b c d e f", *"ghijklm"], 0, 8),
    ],
)
def test_cases_of_the_rules(guesses, golds, em, f1):
    scores = drop_scores([guesses], [golds])
    assert (scores["em"], scores["f1"]) == (pytest.approx(em), pytest.approx(f1))


def test_a_question_without_gold_spans_is_refused():
    with pytest.raises(ValueError, match="no gold span"):
        drop_scores([["ore"]], [[]])


def test_an_assignment_of_any_shape_has_the_total_of_scipys():
    for rng in rounds():
        rows, columns = rng.randint(1, 9), rng.randint(1, 9)
        value = rng.choice([rng.random, lambda rng=rng: rng.choice([0.0, 0.5, 2 / 3, 1.0])])
        weights = [[value() for _ in range(columns)] for _ in range(rows)]
        pairs = best_assignment(weights)
        assert len(pairs) == len({r for r, _ in pairs}) == len({c for _, c in pairs})
        assert len(pairs) == min(rows, columns) and pairs == sorted(pairs)
        best = np.array(weights)[linear_sum_assignment(weights, maximize=True)].sum()
        assert sum(weights[r][c] for r, c in pairs) == pytest.approx(best, abs=1e-9)
    assert best_assignment([]) == best_assignment([[], []]) == []
