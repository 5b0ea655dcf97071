"""Neither task can be solved from surfaces alone."""

import runpy
from pathlib import Path

import pytest

BASELINES = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "pocket_baselines.py"))


def test_a_gazetteer_of_the_training_names_stays_under_80():
    assert BASELINES["gazetteer_f1"]() <= 0.80


def test_a_good_share_of_the_test_mentions_is_new():
    assert 0.25 <= BASELINES["unseen_share"]() <= 0.55


@pytest.mark.parametrize("longest", [1, 2])
def test_a_bag_of_words_stays_under_75(longest):
    pytest.importorskip("sklearn")
    assert BASELINES["bag_of_words"](longest, 1.0) <= 0.75
