"""Warnings of a run that does not learn; a run that learns has none."""

import pytest

from ptrun.training.health import Health, near_chance, one_answer
from ptrun.types import SIGNS, Example, Prediction


def answers(*values):
    return [Prediction(str(i), value) for i, value in enumerate(values)]


def watched(losses):
    health = Health()
    for loss in losses:
        health.step(loss)
    return health.findings(len(losses))


FALLING = [0.7 - 0.01 * i for i in range(60)]


def test_a_falling_loss_is_well():
    assert watched(FALLING) == []
    assert watched([0.001] * 60) == []  # nothing left to learn
    assert watched([0.7] * 39) == []  # too few steps to tell


@pytest.mark.parametrize(
    ("losses", "words"),
    [
        ([0.7] * 60, "the loss hardly moved, from 0.7"),
        ([0.7] * 30 + [3.0] * 30, "the loss rose from 0.7"),
    ],
)
def test_a_run_that_does_not_learn_is_told(losses, words):
    (found,) = watched(losses)
    assert words in found and "try" in found


def test_a_resumed_run_says_nothing_about_its_loss():
    health = Health()
    for _ in range(60):
        health.step(0.7)
    assert health.findings(100) == []


def test_one_answer_three_times_is_told_once():
    health, same, both = Health(), answers(*[1] * 10), answers(*[0, 1] * 5)
    told = [health.judge(own) for own in (same, same, both, same, same, same, same, same)]
    assert [text is not None for text in told] == [False] * 5 + [True, False, False]
    assert "the last dev answers are all the same" in health.findings(8)[0]
    health.judge(both)
    assert health.findings(8) == []


def test_parts_of_facts_may_have_one_answer():
    health = Health()
    health.compares = False
    assert [health.judge(answers(*[1] * 10)) for _ in range(4)] == [None] * 4


def test_tags_are_compared_one_by_one():
    assert one_answer(answers(*[["O", "O"]] * 10))
    assert not one_answer(answers(*[["O", "B-LOC"]] * 10))
    assert not one_answer(answers(*[1] * 9))  # too few to tell


@pytest.mark.parametrize(
    ("count", "accuracy", "steps", "warns"),
    [
        (400, 56.5, 100, True),
        (400, 58.0, 100, False),  # 50 + 3 * 2.5 = 57.5
        (99, 50.0, 100, False),
        (400, 50.0, 39, False),
    ],
)
def test_an_accuracy_near_the_most_frequent_label_is_said(count, accuracy, steps, warns):
    dev = [Example(str(i), {}, "ab"[i % 2]) for i in range(count)]
    warnings = near_chance(dev, accuracy, steps)
    assert bool(warnings) == warns
    assert all(text.startswith(SIGNS[3]) for text in warnings)
