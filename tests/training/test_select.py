"""`train.select`: the evaluation that a run keeps, by dev metric, by dev loss, or the last."""

import math
from copy import deepcopy
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from ptrun.config.schema import Select, TrainConfig
from ptrun.errors import UserError
from ptrun.method.prompt_tuning import PromptTuning
from ptrun.training.member import check_select
from tests.readings import reading, reads
from tests.small_runs import Memory, fitted, member, sst2

PATTERN = "{sentence} {mask}"


def trained(tiny, data_dir, *, journal=None, budget=40, count=1, **train):
    backbone = tiny()
    make = reads(PromptTuning, reading("verbalizer"), length=3)
    settings = {"max_steps": 6, "eval_every": 1, "lr": 0.5, **train}
    task = sst2(data_dir, PATTERN)
    made = [
        member(make, backbone, task, seed, journal if count == 1 else None, **settings)
        for seed in range(1, count + 1)
    ]
    return fitted(made, budget), made


def by_hand(fit, one, task):
    """Return the mean of -log p(right label) over dev, from one example at a time."""
    costs = []
    for features, example in zip(one.dev, task.load("dev"), strict=True):
        ((answer,),) = fit.predict([one.method], [[features]])
        p = answer.probability
        costs.append(-math.log(p if answer.value == example.target else 1 - p))
    return sum(costs) / len(costs)


@pytest.mark.parametrize("budget", [40, 8], ids=["whole", "parts"])
def test_the_loss_on_dev_is_the_mean_cross_entropy_without_dropout(tiny, data_dir, budget):
    fit, (one,) = trained(tiny, data_dir, budget=budget, select=Select.loss)
    expected = by_hand(fit, one, sst2(data_dir, PATTERN))
    assert one.history[-1]["loss"] == pytest.approx(expected, rel=1e-4)


def test_the_lowest_loss_is_kept_with_its_metric(tiny, data_dir):
    fit, made = trained(tiny, data_dir, count=3, select=Select.loss)
    for one in made:
        losses = [row["loss"] for row in one.history]
        assert one.best_step == 1 + losses.index(min(losses))
        one.finish()
        again = by_hand(fit, one, sst2(data_dir, PATTERN))
        assert again == pytest.approx(min(losses), rel=1e-4)
    plain = trained(tiny, data_dir)[1][0]
    assert all("loss" not in row for row in plain.history)


def judged(tiny, data_dir, rows, **train):
    """Return a member whose evaluations are these pairs of accuracy and loss."""
    one = member(partial(PromptTuning, length=3), tiny(), sst2(data_dir), **train)
    for step, (accuracy, loss) in enumerate(rows, start=1):
        one.step, one.score = step, lambda _, value=accuracy: {"accuracy": value}
        one.judge([], loss if one.train.select is Select.loss else None)
    return one


@pytest.mark.parametrize(("select", "best"), [("metric", 2), ("loss", 3), ("last", 4)])
def test_metric_loss_or_the_last_step_selects(tiny, data_dir, select, best):
    rows = [(50.0, 0.9), (70.0, 0.8), (60.0, 0.5), (40.0, 0.6)]
    one = judged(tiny, data_dir, rows, select=Select(select))
    assert one.best_step == best


def test_patience_counts_evaluations_without_a_lower_loss(tiny, data_dir):
    rows = [(50.0, 0.5), (60.0, 0.5), (70.0, 0.6)]
    one = judged(tiny, data_dir, rows, select=Select.loss, patience=2)
    assert one.stale == 2 and not one.active and one.best_step == 1
    one = judged(tiny, data_dir, [(50.0, math.nan)], select=Select.loss)
    assert one.failed == "dev loss is nan at step 1"


def test_a_resumed_run_selects_as_a_whole_one(tiny, data_dir):
    whole = trained(tiny, data_dir, select=Select.loss, max_steps=8)[1][0]

    class Stopped(Memory):
        def draft(self, tensors, meta):
            kept = super().draft(tensors, deepcopy(meta))
            return kept if meta["step"] == 4 else lambda: None

    journal = Stopped()
    trained(tiny, data_dir, select=Select.loss, max_steps=8, journal=journal)
    rest = trained(tiny, data_dir, select=Select.loss, max_steps=8, journal=journal)[1][0]
    assert (rest.best_step, rest.history) == (whole.best_step, whole.history)
    assert rest.best_metrics == whole.best_metrics and rest.best_value == whole.best_value
    for name, tensor in whole.best.items():
        assert torch.equal(rest.best[name], tensor)


def test_a_readout_that_reads_dev_in_another_way_has_no_loss_there(tiny, data_dir):
    class Taught:
        teaches = True

    with pytest.raises(UserError, match=r"train.select=loss: Taught .* type train.select=metric"):
        check_select(TrainConfig(select=Select.loss), SimpleNamespace(readout=Taught()))
    check_select(TrainConfig(select=Select.last), SimpleNamespace(readout=Taught()))
