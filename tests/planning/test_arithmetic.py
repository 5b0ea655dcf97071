"""The operations of a run against closed forms, and its time at a given speed."""

import pytest

from ptrun.config.compose import compose_run
from ptrun.planning.costs import Texts, arithmetic, seconds
from ptrun.runs.plan import plan

HIDDEN, INNER, LENGTH = 768, 3072, 100


@pytest.fixture
def planned(tmp_path):
    """Return a function that plans a run of BERT-base without its weights."""

    def made(method, *overrides):
        given = [f"method={method}", "backbone=bert_base_cased", "task=pocket_sentiment"]
        return plan(compose_run([*given, f"outputs={tmp_path}", *overrides]))

    return made


def layers(tokens, keys):
    """Return the operations of twelve layers in one forward pass of a text.

    After its attention, the last layer computes only the token that the head reads.
    """
    after = HIDDEN * HIDDEN + 2 * HIDDEN * INNER
    products = 3 * HIDDEN * HIDDEN + after
    every = 12 * (2 * tokens * products + 4 * tokens * keys * HIDDEN)
    return every - 2 * (tokens - 1) * after


@pytest.mark.parametrize(
    ("method", "tokens", "keys", "times"),
    [
        ("fine_tuning", LENGTH, LENGTH, 3),
        ("ptuning_v2", LENGTH, LENGTH + 20, 2),  # no gradients of frozen weights
        ("prompt_tuning", LENGTH + 20, LENGTH + 20, 2),
    ],
)
def test_operations_are_those_of_the_products(planned, method, tokens, keys, times):
    length = [] if method == "fine_tuning" else ["method.length=20"]
    found = arithmetic(planned(method, *length), LENGTH)
    assert found.answer == pytest.approx(layers(tokens, keys), rel=0.01)
    assert found.step == pytest.approx(times * layers(tokens, keys), rel=0.03)


@pytest.mark.slow
def test_the_time_counts_steps_and_answers(planned):
    own = planned("ptuning_v2", "train.max_steps=40", "train.batch_size=8", "train.eval_every=10")
    each = arithmetic(own, 30)
    total = 40 * 8 * each.step + (4 * 50 + 200) * each.answer
    texts = Texts(60, "as requested", 30, train=100, dev=50, test=200)
    assert seconds(own, texts, tflops=2.0) == pytest.approx(total / 2e12)


def test_the_time_is_not_known_without_data(planned):
    own = planned("ptuning_v2", "train.max_steps=40")
    assert seconds(own, Texts(60, "assumed", 60, train=None), tflops=1.0) is None
