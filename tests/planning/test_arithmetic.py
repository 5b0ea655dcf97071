"""The operations of a run against closed forms, and its time at a given speed."""

import pytest

from ptrun.config.compose import compose_run
from ptrun.planning.costs import Costs, Texts
from ptrun.runs.plan import plan

HIDDEN, INNER, LENGTH = 768, 3072, 100


@pytest.fixture
def planned(tmp_path):
    """Return a function that returns the costs of a run of BERT-base without its weights."""

    def made(method, texts, *overrides):
        given = [f"method={method}", "backbone=bert_base_cased", "task=pocket_sentiment"]
        return Costs(plan(compose_run([*given, f"outputs={tmp_path}", *overrides])), texts)

    return made


def layers(tokens, keys):
    """Return the operations of twelve layers in one forward pass of a text."""
    products = 4 * HIDDEN * HIDDEN + 2 * HIDDEN * INNER
    return 12 * (2 * tokens * products + 4 * tokens * keys * HIDDEN)


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
    texts = Texts(LENGTH, "as requested", LENGTH, train=100, dev=0, test=0)
    run = planned(method, texts, "train.max_steps=1", "train.batch_size=1", *length)
    assert run.sizes.operations(LENGTH) == pytest.approx(layers(tokens, keys), rel=0.01)
    assert run.seconds(1e-12) == pytest.approx(times * layers(tokens, keys), rel=0.01)


def test_the_time_counts_steps_and_answers(planned):
    texts = Texts(60, "as requested", 30, train=100, dev=50, test=200)
    typed = ["train.max_steps=40", "train.batch_size=8", "train.eval_every=10"]
    run = planned("ptuning_v2", texts, *typed)
    passes = 2 * 40 * 8 + 4 * 50 + 200
    assert run.seconds(2.0) == pytest.approx(passes * run.sizes.operations(30) / 2e12)


def test_the_time_is_not_known_without_data(planned):
    run = planned("ptuning_v2", Texts(60, "assumed", 60, train=None), "train.max_steps=40")
    assert run.seconds(1.0) is None
