"""Questions of Reasoning Gym, and their checkers."""

import logging

import pytest

from ptrun.config.build import build
from ptrun.errors import UserError
from ptrun.task import reasoning
from ptrun.types import Prediction
from tests.composing import task_node
from tests.tiers import package

package("reasoning_gym")
ORIGIN = {"reasoning": "chain_sum", "options": {"max_terms": 2, "max_digits": 2}, "seed": 3}


def questions(split, **more):
    origin = {**ORIGIN, "rows": {"train": 60, "validation": 30, "test": 40}, **more}
    return [row["question"] for _, row in reasoning.rows(origin, split)]


def made(**changes):
    node = task_node("reasoning_gym")
    return build("task", {**node, "source": {**node["source"], **changes}}, None)


def test_no_question_is_in_two_parts_or_twice():
    parts = [questions(split) for split in ("train", "validation", "test")]
    assert [len(own) for own in parts] == [60, 30, 40]
    assert len({one for own in parts for one in own}) == 130


def test_test_does_not_depend_on_the_size_of_train():
    sizes = {"train": 500, "validation": 30, "test": 40}
    assert questions("test") == questions("test", rows=sizes)
    assert questions("train", rows=sizes)[:60] == questions("train")


def test_another_seed_asks_other_questions():
    assert questions("train") == questions("train")
    assert questions("train") != questions("train", seed=4)


def test_the_checker_of_a_generator_scores_its_own_answers():
    rows = [row for _, row in reasoning.rows({**ORIGIN, "rows": {"test": 5}}, "test")]
    assert [reasoning.checked(ORIGIN, row["answer"], row["entry"]) for row in rows] == [1.0] * 5
    assert reasoning.checked(ORIGIN, "no number", rows[0]["entry"]) == 0.0


def test_a_text_that_a_checker_cannot_read_is_wrong(caplog):
    with caplog.at_level(logging.WARNING):
        assert reasoning.checked(ORIGIN, "7", {}) == 0.0
    assert "scored as wrong" in caplog.text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"reasoning": "chain_sums"}, "did you mean 'chain_sum'"),
        ({"options": {"max_term": 2}}, "unexpected keyword argument 'max_term'"),
        ({"options": {"max_terms": 1}}, "max_terms must be >= min_terms"),
        ({"options": {"max_terms": 2, "max_digits": 1}, "rows": {"test": 500}}, "has only 200"),
        ({"seed": "x"}, "task.source.seed=x"),
    ],
)
def test_wrong_options_are_refused_by_name(change, said):
    with pytest.raises(UserError, match=said):
        list(reasoning.rows({**ORIGIN, **change}, "test"))


def test_the_task_reports_the_checker_first():
    task = made(rows={"train": 8, "validation": 4, "test": 4})
    examples = task.load("test")
    assert task.metric == "checked"
    right = [Prediction(e.id, e.target[0]) for e in examples]
    assert task.score(right, examples) == {"checked": 100.0, "exact_match": 100.0}
    wrong = [Prediction(e.id, "x") for e in examples]
    assert task.score(wrong, examples) == {"checked": 0.0, "exact_match": 0.0}
    unwritten = [Prediction(e.id, None, figures={"loss": 2.0, "tokens": 2}) for e in examples]
    assert set(task.score(unwritten, examples)) == {"loss", "perplexity"}


def test_the_version_of_the_package_is_in_the_digest(monkeypatch):
    before = made().digest()
    monkeypatch.setattr(reasoning, "installed", lambda: "0.0")
    assert made().digest() != before
