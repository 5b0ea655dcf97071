import warnings

import pytest
from sklearn.metrics import classification_report, confusion_matrix

from ptrun.metrics import (
    accuracy,
    accuracy_and_f1,
    binary_f1,
    by_label,
    macro_f1,
    multirc_scores,
    precision_at_1,
    score,
)
from tests.metrics.corruption import labels, rounds

CB = ["entailment", "contradiction", "neutral"]


def pairs(names, stray=()):
    for rng in rounds():
        golds = labels(rng, names, rng.randint(1, 30))
        yield [rng.choice([*names, *stray]) if rng.random() < 0.5 else g for g in golds], golds


def test_gold_scores_100():
    golds = [*CB, "neutral"]
    assert accuracy(golds, golds) == macro_f1(golds, golds) == 100.0
    assert binary_f1(golds, golds, positive="neutral") == 100.0
    assert accuracy_and_f1(golds, golds, positive="neutral") == 100.0


def test_a_stray_word_adds_a_class():
    golds = ["entailment", "contradiction", "neutral"]
    assert macro_f1([*golds[:2], "maybe"], golds) == pytest.approx(50.0)
    assert macro_f1(golds[:2], golds[:2]) == 100.0


def test_what_cannot_be_scored_is_named():
    with pytest.raises(ValueError, match="1 predictions for 2 targets"):
        accuracy(["a"], ["a", "b"])
    with pytest.raises(ValueError, match="no targets"):
        macro_f1([], [])


def test_a_metric_is_chosen_by_its_name():
    guesses, golds = ["a", "b", "b", "c"], ["a", "a", "b", "b"]
    found = {
        name: score(name, guesses, golds, positive="a")
        for name in ("accuracy", "macro_f1", "f1", "accuracy_f1")
    }
    assert found == {
        "accuracy": 50.0,
        "macro_f1": macro_f1(guesses, golds),
        "f1": binary_f1(guesses, golds, positive="a"),
        "accuracy_f1": accuracy_and_f1(guesses, golds, positive="a"),
    }
    assert len(set(found.values())) == 4


@pytest.mark.slow
def test_scores_and_confusion_of_labels_equal_sklearn():
    for guesses, golds in pairs(CB, stray=["maybe"]):
        own = by_label("label", guesses, golds)
        theirs = classification_report(golds, guesses, output_dict=True, zero_division=0)
        names = sorted({*guesses, *golds})
        assert list(own["scores"]) == names
        for name in names:
            scores = own["scores"][name]
            assert scores["count"] == theirs[name]["support"]
            for ours, official in (("precision",) * 2, ("recall",) * 2, ("f1", "f1-score")):
                assert scores[ours] == pytest.approx(100 * theirs[name][official], abs=1e-9)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about a single label
            table = confusion_matrix(golds, guesses, labels=names)
        for i, gold in enumerate(names):
            row = own["confusion"].get(gold, {})
            assert [row.get(guess, 0) for guess in names] == table[i].tolist()


def test_answers_without_labels_have_no_scores_of_labels():
    assert by_label("number", [1.0], [2.0]) == {}


def test_multirc_scores_answers_and_whole_questions():
    golds, questions = ["1", "0", "0", "1"], ["p q", "p q", "p r", "p r"]
    assert multirc_scores(golds, golds, questions, positive="1") == {"f1a": 100.0, "em": 100.0}
    scores = multirc_scores(["0", "0"], ["1", "0"], ["q", "r"], positive="1")
    assert scores == {"f1a": 0.0, "em": 50.0}


def test_the_mean_over_relations_weighs_each_once():
    scores = precision_at_1(["Oslo", "x", "x", "x"], ["Oslo"] * 4, ["P36", "P19", "P19", "P19"])
    assert scores == {"p_at_1": 50.0, "p_at_1_facts": 25.0}
    scores = precision_at_1(["Oslo", "Rome"], ["Oslo", "Rome"], ["P36", "P19"])
    assert scores == {"p_at_1": 100.0, "p_at_1_facts": 100.0}
