import pytest
from sklearn.metrics import accuracy_score, recall_score

from ptrun.metrics import precision_at_1
from tests.metrics.corruption import labels, rounds


def test_gold_scores_100():
    scores = precision_at_1(["Oslo", "Rome"], ["Oslo", "Rome"], ["P36", "P19"])
    assert scores == {"p_at_1": 100.0, "p_at_1_facts": 100.0}


def test_the_mean_over_relations_weighs_each_once():
    scores = precision_at_1(["Oslo", "x", "x", "x"], ["Oslo"] * 4, ["P36", "P19", "P19", "P19"])
    assert scores == {"p_at_1": 50.0, "p_at_1_facts": 25.0}


@pytest.mark.slow
def test_scores_equal_sklearns_recall_by_relation():
    for rng in rounds():
        size = rng.randint(1, 40)
        golds, relations = labels(rng, "abcdef", size), labels(rng, ["P1", "P2", "P3"], size)
        guesses = [rng.choice("abcdef") if rng.random() < 0.5 else g for g in golds]
        marks = [r if p == g else "miss" for r, p, g in zip(relations, guesses, golds, strict=True)]
        kinds = sorted(set(relations))
        macro = recall_score(relations, marks, labels=kinds, average="macro", zero_division=0)
        scores = precision_at_1(guesses, golds, relations)
        assert scores["p_at_1"] == pytest.approx(100 * macro, abs=1e-9)
        facts = 100 * accuracy_score(golds, guesses)
        assert scores["p_at_1_facts"] == pytest.approx(facts, abs=1e-9)
