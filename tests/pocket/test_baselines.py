"""Neither task can be solved from surfaces alone."""

import runpy
from pathlib import Path

import pytest

BASELINES = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "pocket_baselines.py"))


def test_a_gazetteer_of_the_training_names_stays_under_75():
    assert BASELINES["gazetteer_f1"]() <= 0.75


def test_about_half_of_the_test_mentions_are_new():
    assert 0.40 <= BASELINES["unseen_share"]() <= 0.55


@pytest.mark.parametrize("longest", [1, 2])
def test_a_bag_of_words_stays_under_75(longest):
    pytest.importorskip("sklearn")
    assert BASELINES["bag_of_words"](longest, 1.0) <= 0.75
