import warnings

import pytest
from sklearn.metrics import (
    accuracy_score,
    classification_report,
    confusion_matrix,
    f1_score,
)

from ptrun.metrics import (
    accuracy,
    accuracy_and_f1,
    binary_f1,
    by_label,
    macro_f1,
    macro_f1_over,
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
    assert macro_f1_over(CB, golds, golds) == binary_f1(golds, golds, positive="neutral") == 100.0
    assert accuracy_and_f1(golds, golds, positive="neutral") == 100.0


@pytest.mark.slow
def test_accuracy_and_f1_equal_sklearn():
    for guesses, golds in pairs(["0", "1"]):
        right = 100 * accuracy_score(golds, guesses)
        truth, guess = ([int(label) for label in side] for side in (golds, guesses))
        f1 = 100 * f1_score(truth, guess, zero_division=0)
        assert accuracy(guesses, golds) == pytest.approx(right, abs=1e-9)
        assert binary_f1(guesses, golds, positive="1") == pytest.approx(f1, abs=1e-9)
        mean = accuracy_and_f1(guesses, golds, positive="1")
        assert mean == pytest.approx((right + f1) / 2, abs=1e-9)


@pytest.mark.slow
def test_macro_f1_equals_sklearn_over_gold_and_predicted_classes():
    for guesses, golds in pairs(CB, stray=["maybe", "no"]):
        expected = 100 * f1_score(golds, guesses, average="macro", zero_division=0)
        assert macro_f1(guesses, golds) == pytest.approx(expected, abs=1e-9)


@pytest.mark.slow
def test_macro_f1_over_equals_sklearn_over_listed_classes():
    for guesses, golds in pairs(CB, stray=["maybe", "no"]):
        expected = 100 * f1_score(golds, guesses, labels=CB, average="macro", zero_division=0)
        assert macro_f1_over(CB, guesses, golds) == pytest.approx(expected, abs=1e-9)


def test_a_stray_word_adds_a_class_to_one_mean_only():
    golds = ["entailment", "contradiction", "neutral"]
    guesses = ["entailment", "contradiction", "maybe"]
    assert macro_f1(guesses, golds) == pytest.approx(50.0)
    assert macro_f1_over(CB, guesses, golds) == pytest.approx(200 / 3)


def test_an_unused_class_counts_0_in_one_mean_only():
    golds = ["entailment", "contradiction"]
    assert macro_f1(golds, golds) == 100.0
    assert macro_f1_over(CB, golds, golds) == pytest.approx(200 / 3)


def test_what_cannot_be_scored_is_named():
    with pytest.raises(ValueError, match="1 predictions for 2 targets"):
        accuracy(["a"], ["a", "b"])
    with pytest.raises(ValueError, match="no targets"):
        macro_f1([], [])
    with pytest.raises(ValueError, match="target 'maybe' is not one of"):
        macro_f1_over(CB, ["neutral"], ["maybe"])


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
