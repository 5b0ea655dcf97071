"""`train.eval_rows` bounds the examples that select; test stays whole."""

from ptrun.config.compose import compose_run
from ptrun.runs.examples import split_of
from ptrun.runs.plan import plan


def split(tmp_path, *typed):
    composed = compose_run(["task=pocket_sentiment", f"outputs={tmp_path}", *typed])
    return plan(composed), split_of(plan(composed))[0]


def test_dev_is_a_sample_in_file_order_and_the_rest_stays(tmp_path):
    _, whole = split(tmp_path)
    planned, some = split(tmp_path, "train.eval_rows=30")
    assert len(some.dev) == 30 and [e for e in whole.dev if e in some.dev] == list(some.dev)
    assert some.train == whole.train and some.test == whole.test
    assert some.origin["dev"] == f"30 of {len(whole.dev)} examples, {whole.origin['dev']}"
    assert planned.content["train"]["eval_rows"] == 30


def test_the_data_seed_alone_draws_it_and_a_larger_number_changes_nothing(tmp_path):
    seeds = (["seed=1"], ["seed=2"], ["data_seed=2"])
    draws = [split(tmp_path, "train.eval_rows=30", *seed)[1].dev for seed in seeds]
    assert draws[0] == draws[1] != draws[2]
    assert split(tmp_path, "train.eval_rows=100000")[1] == split(tmp_path)[1]
