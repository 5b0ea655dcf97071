"""The planner of jobs: it plans a run for a device that is not here, and says what it needs."""

import pytest

from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.planning import planner
from ptrun.planning.costs import planned_on
from ptrun.planning.memory import layout_of
from ptrun.planning.overview import PlanOptions, planned_job
from ptrun.runs.plan import plan


@pytest.fixture
def facts(tmp_path):
    needs = {}

    def made(*overrides):
        given = ["task=pocket_sentiment", f"outputs={tmp_path}", "train.max_steps=20"]
        return planner.facts(compose_run([*given, *overrides]), needs)

    return made


def test_a_run_on_a_gpu_is_planned_where_there_is_none(facts):
    told = facts("hardware=gpu", "cluster.tflops=10")
    assert told["most"] == 32
    needs = told["needs"]
    assert (needs["device"], needs["ranks"], needs["each"]) == ("cuda", 1, 0.0)
    assert needs["gib"] == pytest.approx(3.0, abs=0.1) and 0 < needs["seconds"] < 1


def test_runs_that_differ_in_seed_and_rate_share_a_shape_and_needs(facts):
    one, other = facts("seed=1"), facts("seed=2", "train.lr=0.1")
    assert one["shape"] == other["shape"] and one["needs"] == other["needs"]
    assert one["folder"] != other["folder"] and one["needs"]["seconds"] is None


def test_tuned_runs_are_alone_and_ranks_are_counted(facts):
    told = facts("method=fine_tuning", "hardware=zero1", "hardware.ranks=4")
    assert told["shape"] is None and told["most"] == 1 and told["needs"]["ranks"] == 4


def test_a_refused_run_says_why(facts):
    with pytest.raises(UserError, match="lr"):
        facts("train.lr=-1")


# The jobs of a sweep and their state, from run folders alone.

SMALL = ["task=pocket_sentiment", "method=prompt_tuning"]


def test_a_run_has_the_name_here_that_it_has_when_it_runs(tmp_path):
    own = compose_run([*SMALL, f"outputs={tmp_path}"])
    assert planned_on(own, layout_of(own)).run_id == plan(own).run_id


def test_a_run_of_a_device_that_is_not_here_has_a_name():
    own = compose_run([*SMALL, "hardware=gpu"])
    planned = planned_on(own, layout_of(own))
    assert planned.run_id.startswith("prompt_tuning-pocket_bert-pocket_sentiment-full-s1-")
    assert planned.content["hardware"] == {"precision": "fp32"}


def test_a_refused_job_says_why_and_rerun_does_it_again(tmp_path):
    refused = planned_job("one", (*SMALL, "method.lenght=3"), PlanOptions())
    assert refused.planned is None and "did you mean 'length'" in refused.state
    typed = (*SMALL, f"outputs={tmp_path}", "rerun=true")
    run = compose_run(typed)
    planned_on(run, layout_of(run)).folder.mkdir(parents=True)
    again = planned_job("one", typed, PlanOptions())
    assert again.state == "interrupted before its first save, to be run again"
