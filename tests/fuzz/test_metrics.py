"""Metrics of any texts and numbers equal the rules written out, and stay between their limits."""

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from ptrun.metrics import (
    accuracy,
    drop_scores,
    entity_scores,
    macro_f1,
    pearson,
    spearman,
    squad_scores,
    squad_v2_scores,
)
from tests.fuzz.strategies import FLOATS, TEXTS
from tests.metrics import reference

NAMES = ["a", "b", "c", "stray"]
ANSWERS = (
    st.lists(
        st.sampled_from(
            ["the", "a", "film", "Film.", "1,000", "1000", "1.0", "x-y", "--", "猫", "é"]
        ),
        max_size=4,
    ).map(" ".join)
    | TEXTS
)
SPANS, GOLDS = st.lists(ANSWERS, max_size=3), st.lists(ANSWERS, min_size=1, max_size=3)
near = pytest.approx


def both(pairs):
    return [list(side) for side in zip(*pairs, strict=True)]


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
