import pytest

from ptrun.metrics.null_threshold import at_threshold, best_thresholds
from ptrun.metrics.squad import squad_v2_scores
from tests.metrics.corruption import rounds

WORDS = ["ore", "tin", "sea", "red gulf", "red sea"]


@pytest.mark.slow
def test_the_best_threshold_equals_a_trial_of_each():
    for rng in rounds():
        size = rng.randint(1, 12)
        golds = [rng.choice([[], [rng.choice(WORDS)]]) for _ in range(size)]
        guesses = [rng.choice([*WORDS, ""]) for _ in range(size)]
        nulls = [rng.uniform(0.1, 9.0) for _ in range(size)]
        found = best_thresholds(guesses, golds, nulls)
        for name in ("em", "f1"):
            tried = [
                squad_v2_scores(at_threshold(guesses, nulls, threshold), golds)[name]
                for threshold in (0.0, *nulls)
            ]
            assert found[name].score == pytest.approx(max(tried), abs=1e-9)
            answers = at_threshold(guesses, nulls, found[name].value)
            assert squad_v2_scores(answers, golds)[name] == pytest.approx(max(tried), abs=1e-9)


def test_gold_scores_100_where_null_scores_separate():
    golds = [["ore"], [], ["tin"]]
    found = best_thresholds(["ore", "sea", "tin"], golds, [-2.0, 3.0, -1.0])
    assert (found["em"].score, found["f1"].score, found["f1"].value) == (100.0, 100.0, -1.0)


def test_null_is_answered_above_the_threshold_only():
    assert at_threshold(["a", "b", "c"], [-0.1, 0.0, 0.1], 0.0) == ["a", "b", ""]


def test_the_lowest_of_equally_good_thresholds_is_returned():
    found = best_thresholds(["ore", "sea", "tin"], [["ore"], [], ["tin"]], [1.0, 2.0, 3.0])
    assert found["em"].score == pytest.approx(200 / 3) and found["em"].value == 1.0


def test_official_quirks_are_kept():
    tied = best_thresholds(["ore", "sea"], [["ore"], []], [1.0, 1.0])["em"]
    assert (tied.score, tied.value) == (100.0, 1.0)
    all_null = best_thresholds(["sea"], [[]], [-5.0])["em"]
    assert (all_null.score, all_null.value) == (100.0, 0.0)
    assert best_thresholds(["the", "tin"], [[], ["tin"]], [1.0, 2.0])["em"].score == 50.0
