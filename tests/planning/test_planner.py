"""The planner of jobs: it plans a run for a device that is not here, and says what it needs."""

import pytest

from ptrun.config.compose import compose_run
from ptrun.planning.planner import Planner


@pytest.fixture
def facts(tmp_path):
    planner = Planner()

    def made(*overrides):
        given = ["task=pocket_sentiment", f"outputs={tmp_path}", "train.max_steps=20"]
        return planner.facts(3, compose_run([*given, *overrides]))

    return made


def test_a_run_on_a_gpu_is_planned_where_there_is_none(facts):
    told = facts("hardware=gpu", "cluster.tflops=10")
    assert (told["index"], told["refused"], told["most"]) == (3, None, 32)
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
    assert "lr" in facts("train.lr=-1")["refused"]
