"""No task can be solved from surfaces alone."""

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tiers import package

FILE = Path(__file__).parents[2] / "benchmarks" / "pocket_baselines.py"
BASELINES = runpy.run_path(str(FILE))
# Topics are told by their words, in the main: a bag of words may be good there.
MOST = {
    "topics_words": 0.95,
    "pairs_words": 0.6,
    "pairs_words_and_overlap": 0.65,
    "similarity_overlap_pearson": 75,
    "choice_overlap": 0.45,
    "choice_words": 0.6,
    "qa_no_answer_em": 0.3,
    "qa_first_entity_em": 0.3,
    "qa_nearest_entity_em": 0.3,
    "multispan_first_entity_em": 0.3,
    "multispan_every_entity_em": 0.3,
    "facts_majority_p_at_1": 0.2,
    "srl_position_f1": 0.7,
    "srl_word_and_side_f1": 0.7,
}


def test_about_half_of_the_test_mentions_are_new():
    assert 0.40 <= BASELINES["unseen_share"]() <= 0.55


@pytest.mark.parametrize("longest", [1, 2])
def test_a_bag_of_words_stays_under_75(longest):
    package("sklearn")
    assert BASELINES["bag_of_words"](longest, 1.0) <= 0.75


@pytest.mark.slow
def test_simple_baselines_stay_low(tmp_path):
    package("sklearn")
    line = [sys.executable, str(FILE), "--out", str(tmp_path)]
    subprocess.run(line, cwd=tmp_path, check=True, capture_output=True)
    figures = json.loads((tmp_path / "pocket_baselines.json").read_text())
    others = figures["other_tasks"]
    assert figures["ner_gazetteer_f1"] <= 0.75 and set(others) == set(MOST)
    assert not {name: value for name, value in others.items() if value > MOST[name]}
