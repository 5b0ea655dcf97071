from collections import defaultdict

import pytest
from sklearn.metrics import f1_score

from ptrun.metrics import multirc_scores
from tests.metrics.corruption import labels, rounds


def test_gold_scores_100():
    golds = ["1", "0", "0", "1"]
    scores = multirc_scores(golds, golds, ["p q", "p q", "p r", "p r"], positive="1")
    assert scores == {"f1a": 100.0, "em": 100.0}


@pytest.mark.slow
def test_scores_equal_sklearn_per_question():
    for rng in rounds():
        size = rng.randint(2, 30)
        golds, questions = labels(rng, ["0", "1"], size), labels(rng, range(6), size)
        guesses = [rng.choice("01") if rng.random() < 0.3 else g for g in golds]
        rows = defaultdict(lambda: ([], []))
        for question, guess, gold in zip(questions, guesses, golds, strict=True):
            rows[question][0].append(guess)
            rows[question][1].append(gold)
        right = [p == g for p, g in rows.values()]
        scores = multirc_scores(guesses, golds, questions, positive="1")
        assert scores["em"] == pytest.approx(100 * sum(right) / len(right), abs=1e-9)
        truth, guess = ([int(label) for label in side] for side in (golds, guesses))
        f1a = 100 * f1_score(truth, guess, labels=[1], average="macro", zero_division=0)
        assert scores["f1a"] == pytest.approx(f1a, abs=1e-9)


def test_em_is_at_most_the_share_of_questions_with_a_right_answer():
    for rng in rounds():
        golds, questions = labels(rng, "01", 12), labels(rng, range(4), 12)
        guesses = labels(rng, "01", 12)
        hit = {q for q, p, g in zip(questions, guesses, golds, strict=True) if p == g}
        scores = multirc_scores(guesses, golds, questions, positive="1")
        assert scores["em"] <= 100 * len(hit) / len(set(questions)) + 1e-9


def test_no_positive_prediction_scores_0():
    assert multirc_scores(["0", "0"], ["1", "0"], ["q", "r"], positive="1") == {
        "f1a": 0.0,
        "em": 50.0,
    }
