"""Metrics equal scikit-learn, scipy and the rules written out, and stay between their limits."""

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score

from ptrun.metrics import (
    accuracy,
    accuracy_and_f1,
    binary_f1,
    drop_scores,
    entity_scores,
    macro_f1,
    multirc_scores,
    pearson,
    precision_at_1,
    spearman,
    squad_scores,
    squad_v2_scores,
)
from tests.fuzz.strategies import FLOATS, TEXTS
from tests.metrics import reference

NAMES = ["a", "b", "c", "stray"]
PAIRS = st.lists(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES[:3])), min_size=1, max_size=20
)
NUMBERS = st.integers(-50, 50).map(lambda n: n / 10)
WORDS = "the An film Film. 1,000 1000 1.0 x-y -- 猫 é red's x_y (the) the—ore ... $7 007 nan 1e3"
ANSWERS = (
    st.lists(
        st.sampled_from(WORDS.split()),
        max_size=4,
    ).map(" ".join)
    | TEXTS
)
SPANS, GOLDS = st.lists(ANSWERS, max_size=3), st.lists(ANSWERS, min_size=1, max_size=3)
near = pytest.approx


def both(pairs):
    return [list(side) for side in zip(*pairs, strict=True)]


@given(PAIRS)
def test_labels_equal_sklearn(pairs):
    guesses, golds = both(pairs)

    def f1(**how):
        return 100 * f1_score(golds, guesses, zero_division=0, **how)

    right = 100 * accuracy_score(golds, guesses)
    positive = f1(labels=["a"], average="macro")
    assert accuracy(guesses, golds) == near(right, abs=1e-9)
    assert macro_f1(guesses, golds) == near(f1(average="macro"), abs=1e-9)
    assert binary_f1(guesses, golds, positive="a") == near(positive, abs=1e-9)
    mean = accuracy_and_f1(guesses, golds, positive="a")
    assert mean == near((right + positive) / 2, abs=1e-9)


@given(PAIRS, st.data())
def test_scores_by_question_and_relation_equal_a_loop(pairs, data):
    guesses, golds = both(pairs)
    groups = data.draw(st.lists(st.integers(0, 3), min_size=len(pairs), max_size=len(pairs)))
    right: dict = {}
    for group, (guess, gold) in zip(groups, pairs, strict=True):
        right.setdefault(group, []).append(guess == gold)
    em = 100 * np.mean([all(marks) for marks in right.values()])
    scores = multirc_scores(guesses, golds, groups, positive="a")
    assert scores["em"] == near(em) and scores["f1a"] == binary_f1(guesses, golds, positive="a")
    ranked = precision_at_1(guesses, golds, list(map(str, groups)))
    assert ranked["p_at_1"] == near(100 * np.mean([np.mean(marks) for marks in right.values()]))
    assert ranked["p_at_1_facts"] == accuracy(guesses, golds)


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=3, max_size=15))
def test_correlations_equal_scipy(pairs):
    guesses, golds = both(pairs)
    if len(set(guesses)) == 1 or len(set(golds)) == 1:
        assert pearson(guesses, golds) == spearman(guesses, golds) == 0.0
        return
    assert pearson(guesses, golds) == near(100 * pearsonr(guesses, golds)[0], abs=1e-6)
    assert spearman(guesses, golds) == near(100 * spearmanr(guesses, golds)[0], abs=1e-6)


@given(st.lists(st.tuples(FLOATS, FLOATS), min_size=2, max_size=9))
@example([(0.0, 0.0), (5e-324, 1.0)])
@example([(0.0, 0.0), (1e308, 1.0), (-1e308, 2.0)])
def test_a_correlation_of_any_numbers_is_one_between_its_limits(pairs):
    guesses, golds = both(pairs)
    for score in (pearson, spearman):
        assert -100.0 - 1e-6 <= score(guesses, golds) <= 100.0 + 1e-6


@given(st.lists(st.tuples(ANSWERS, st.lists(ANSWERS, max_size=3)), min_size=1, max_size=4))
def test_squad_equals_its_rules_written_out(pairs):
    guesses, golds = both(pairs)
    found = squad_v2_scores(guesses, golds)
    usual = [[g for g in own if reference.squad_words(g)] or [""] for own in golds]
    for name, match in (("em", reference.squad_em), ("f1", null_f1)):
        each = [max(match(p, g) for g in own) for p, own in zip(guesses, usual, strict=True)]
        assert found[name] == near(100 * np.mean(each), abs=1e-9)
        for prefix, part in (("has", [*map(bool, golds)]), ("no", [not own for own in golds])):
            assert (f"{prefix}_answer_{name}" in found) is any(part)
            if any(part):
                score = 100 * np.mean(np.array(each)[part])
                assert found[f"{prefix}_answer_{name}"] == near(score, abs=1e-9)
    assume(all(golds))
    first = squad_scores(guesses, golds)
    each = [max(plain_f1(p, g) for g in own) for p, own in pairs]
    assert first["f1"] == near(100 * np.mean(each), abs=1e-9)


def null_f1(guess, gold):
    return reference.squad_f1(guess, gold, null=True)


def plain_f1(guess, gold):
    return reference.squad_f1(guess, gold, null=False)


@given(st.lists(st.tuples(SPANS, GOLDS), min_size=1, max_size=3))
def test_drop_equals_its_rules_written_out(pairs):
    guesses, golds = both(pairs)
    found = drop_scores(guesses, golds)
    em = [reference.drop_em(*pair) for pair in pairs]
    f1 = [reference.drop_f1(*pair) for pair in pairs]
    assert found["em"] == near(100 * np.mean(em)) and found["f1"] == near(100 * np.mean(f1))


@given(st.lists(st.sampled_from(NAMES), max_size=4), st.lists(st.sampled_from(NAMES), max_size=4))
def test_pairs_of_other_lengths_are_refused(guesses, golds):
    assume(len(guesses) != len(golds) or not golds)
    for score in (accuracy, macro_f1, entity_scores, squad_scores, drop_scores):
        with pytest.raises(ValueError, match=r"predictions for|no targets"):
            score(guesses, golds)
