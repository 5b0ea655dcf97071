"""Which evaluation is kept and when training stops, as P-tuning's few-shot runs do it."""

from functools import partial
from random import Random

import pytest

from ptrun.config.compose import compose_run
from ptrun.config.schema import Ties
from ptrun.method.fine_tuning import FineTuning
from ptrun.method.prompt_tuning import PromptTuning
from ptrun.papers.experiment import load
from tests.small_runs import fitted, member, sst2


def judged(tiny, data_dir, scores, metric=None, **train):
    """Return a member that stops by itself; its evaluations score `scores`, the last for ever."""
    train = {"max_steps": 60, "eval_every": 2, "patience": 10, **train}
    one = member(FineTuning, tiny(), sst2(data_dir), **train)
    one.metric = metric or one.metric
    told = iter(scores)
    last = dict(scores[-1])
    one.score = lambda answers: next(told, last)
    fitted([one])
    return one


@pytest.mark.parametrize(("ties", "best"), [(Ties.last, 22), (Ties.first, 2)])
def test_a_constant_score_stops_at_the_eleventh_check(tiny, data_dir, ties, best):
    """The first check is a gain over nothing; ties move the kept checkpoint, or do not."""
    one = judged(tiny, data_dir, [{"accuracy": 50.0}], ties=ties)
    assert len(one.history) == 11 and one.step == 22 and one.best_step == best


@pytest.mark.slow
def test_on_lama_a_tie_goes_on_and_only_what_is_worse_stops(tiny, data_dir):
    """P-tuning §2a: stop after 20 epochs without a dev score as good as the best."""
    scores = [{"accuracy": value} for value in (50.0, 50.0, 40.0, 50.0, 30.0)]
    one = judged(tiny, data_dir, scores, ties=Ties.last_goes_on, patience=2)
    assert len(one.history) == 6 and one.best_step == 8
    same = judged(tiny, data_dir, [{"accuracy": 50.0}], ties=Ties.last_goes_on, patience=2)
    assert same.step == same.best_step == 60


def test_a_gain_starts_the_count_anew(tiny, data_dir):
    scores = [{"accuracy": value} for value in (50.0, 50.0, 40.0, 60.0)]
    one = judged(tiny, data_dir, [*scores, {"accuracy": 30.0}], ties=Ties.last, patience=3)
    assert [row["accuracy"] for row in one.history][3:] == [60.0, 30.0, 30.0, 30.0]
    assert one.best_step == 8


def test_with_all_metrics_a_trade_is_not_kept_and_only_a_gain_in_all_is_progress(tiny, data_dir):
    """CB and MultiRC: as good in accuracy and F1 is kept, better in both resets the count."""
    told = [(50, 50), (60, 40), (60, 50), (60, 60), (70, 70), (70, 70)]
    scores = [{"accuracy": float(a), "f1": float(f)} for a, f in told]
    one = judged(tiny, data_dir, scores, ties=Ties.last_in_all, patience=4)
    assert one.best_step == one.step == 2 * (5 + 4)
    short = judged(tiny, data_dir, scores, ties=Ties.last_in_all, patience=3)
    assert len(short.history) == 4 and short.best_step == 8


def by_the_released_code(scores):
    """Return the kept and the last check of `train` in P-tuning's few-shot code, on MultiRC."""
    accuracy = f1 = stale = kept = 0
    for check, row in enumerate(scores, start=1):
        if row["accuracy"] >= accuracy and row["f1a"] >= f1:
            better = row["accuracy"] > accuracy and row["f1a"] > f1
            stale = 0 if better else stale + 1
            accuracy, f1, kept = row["accuracy"], row["f1a"], check
        else:
            stale += 1
        if stale == 3:
            break
    return kept, check


def test_on_multirc_exact_match_does_not_count(tiny, data_dir):
    """The released code compares accuracy and F1; EM is a metric of the task, too."""
    told = [(50, 50, 30), (60, 60, 20), (60, 50, 40), (60, 60, 10), (70, 70, 0), (55, 80, 90)]
    scores = [{"accuracy": float(a), "f1a": float(f), "em": float(e)} for a, f, e in told]
    settings = {"metric": "f1a", "ties": Ties.last_in_all, "patience": 3}
    of_two = judged(tiny, data_dir, scores, compared=["accuracy", "f1a"], **settings)
    kept, last = by_the_released_code([*scores, *[scores[-1]] * 5])
    assert (of_two.best_step, of_two.step) == (2 * kept, 2 * last) == (10, 16)
    assert judged(tiny, data_dir, scores, **settings).best_step == 6, "EM falls"


def test_a_dev_score_that_is_no_number_fails_the_member(tiny, data_dir):
    one = judged(tiny, data_dir, [{"accuracy": float("nan")}])
    assert one.failed == "dev accuracy is nan at step 2" and not one.active


def released(scores):
    """Return the epochs of training of the prompt that P-tuning's code for LAMA keeps.

    It evaluates before each of 100 epochs; `scores` are those after 0, 1, 2, ... of them.
    """
    best, kept, stale = 0.0, 0, 0
    for epoch in range(100):
        if epoch > 0 and scores[epoch] >= best:
            best, kept, stale = scores[epoch], epoch, 0
        else:
            stale += 1
        if stale >= 20:
            break
    return kept


def kept(one, scores):
    """Return the epochs of training of what a member keeps, by the engine's order of calls."""
    values = iter(scores if one.due_first else scores[1:])
    one.score = lambda _: {"accuracy": next(values)}
    if one.due_first:
        one.judge([])
    while one.active:
        one.step += one.per_epoch
        one.judge([])
    return one.best_step // one.per_epoch


@pytest.mark.parametrize("table", [True, False], ids=["table 2", "method alone"])
def test_table_2_of_p_tuning_keeps_the_epoch_of_the_released_code(tiny, data_dir, table):
    experiment = load("ptuning/table2")
    cell = next(cell for cell in experiment.cells if cell.key.startswith("bert-base.P-tuning."))
    words = experiment.overrides(cell) if table else ["method=ptuning_lama"]
    train = compose_run(words).config["train"]
    own = {key: train[key] for key in ("epochs", "eval_first", "patience")} | {"max_steps": None}
    make, random, other = partial(PromptTuning, length=3), Random(1), 0
    for trend in [-0.5, 0.5, 2.0] * 4:
        scores = [random.choice([40, 50, 60]) + int(trend * epoch) for epoch in range(101)]
        one = member(make, tiny(), sst2(data_dir), ties=Ties(train["ties"]), **own)
        other += kept(one, scores) != released(scores)
    assert (other == 0) is table, "the method alone may keep what the code never scores"
