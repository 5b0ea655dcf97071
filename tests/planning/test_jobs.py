"""The jobs of a sweep and their state, from run folders alone."""

import json

import pytest
import torch
from safetensors.torch import save_file

from ptrun.config.explain import composed
from ptrun.errors import UserError
from ptrun.planning.jobs import expanded, job, planned_on, state_of
from ptrun.planning.layout import layout_of
from ptrun.run.plan import plan

SMALL = ["task=pocket_sentiment", "method=prompt_tuning"]


def layout(own):
    return layout_of(own.names["hardware"], own.hardware, "fp32", elsewhere=False)


def test_commas_are_jobs_the_first_key_slowest():
    found = expanded(["seed=1,2", "method=prompt_tuning,ptuning_v2", "train.lr=0.1"])
    assert [title for _, title in found] == [
        "seed=1 method=prompt_tuning",
        "seed=1 method=ptuning_v2",
        "seed=2 method=prompt_tuning",
        "seed=2 method=ptuning_v2",
    ]
    assert found[0][0] == ("seed=1", "method=prompt_tuning", "train.lr=0.1")
    assert expanded([]) == [((), "")]


def test_a_list_is_one_value_and_a_range_several():
    ((one, title),) = expanded(["method.layers=[1,2]"])
    assert one == ("method.layers=[1,2]",) and title == ""
    assert [title for _, title in expanded(["seed=range(1,4)"])] == ["seed=1", "seed=2", "seed=3"]


def test_a_component_key_may_be_swept():
    assert [own for (own,), _ in expanded(["method.length=5,10"])] == [
        "method.length=5",
        "method.length=10",
    ]


def test_what_cannot_be_read_is_refused():
    with pytest.raises(UserError):
        expanded(["seed=[1,"])


def test_states_are_read_from_run_folders(tmp_path):
    own = tmp_path / "run"
    assert state_of(own) == "new"
    own.mkdir()
    assert state_of(own) == "interrupted before its first save"
    tensors = {"learned.x": torch.zeros(1)}
    save_file(tensors, own / "state.safetensors", {"state": json.dumps({"step": 7})})
    assert state_of(own) == "interrupted at step 7"
    told = {"run_id": "r", "group": "g", "names": {}, "seed": 1, "metric": "accuracy"}
    told |= {"learned_parameters": {}, "config": {}}
    failed = {**told, "status": "failed", "reason": "loss nan at step 3"}
    (own / "failure.json").write_text(json.dumps(failed))
    assert state_of(own) == "failed: loss nan at step 3"
    (own / "result.json").write_text(json.dumps({**told, "status": "finished"}))
    assert state_of(own) == "finished"
    (own / "result.json").write_text("{")
    assert state_of(own).startswith("damaged")


def test_a_run_has_the_name_here_that_it_has_when_it_runs(tmp_path):
    own = composed([*SMALL, f"outputs={tmp_path}"])
    assert planned_on(own, layout(own)).run_id == plan(own).run_id


def test_a_run_of_a_device_that_is_not_here_has_a_name():
    own = composed([*SMALL, "hardware=gpu"])
    planned = planned_on(own, layout(own))
    assert planned.run_id.startswith("prompt_tuning-pocket_bert-pocket_sentiment-full-s1-")
    assert planned.content["hardware"] == {"precision": "fp32"}


def test_a_refused_job_says_why_and_rerun_does_it_again(tmp_path):
    wrong = composed([*SMALL, "method.lenght=3"])
    refused = job("one", (), wrong, lambda: layout(wrong))
    assert refused.planned is None and "did you mean 'length'" in refused.state
    own = composed([*SMALL, f"outputs={tmp_path}", "rerun=true"])
    planned_on(own, layout(own)).folder.mkdir(parents=True)
    again = job("one", (), own, lambda: layout(own))
    assert again.state == "interrupted before its first save, to be run again" and not again.done
