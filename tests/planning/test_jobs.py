"""The jobs of a sweep and their state, from run folders alone."""

from ptrun.config.compose import compose_run
from ptrun.planning.costs import planned_on
from ptrun.planning.memory import layout_of
from ptrun.planning.overview import PlanOptions, planned_job
from ptrun.runs.plan import plan

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
