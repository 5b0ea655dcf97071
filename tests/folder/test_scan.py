"""The state of a run, from its folder alone, and how far it is, from a journal cut anywhere."""

import json

import pytest
import torch
from safetensors.torch import save_file

from ptrun.folder import digest
from ptrun.folder.lease import held
from ptrun.folder.scan import Progress, progress, state_of
from ptrun.folder.store import RunStore
from ptrun.tracking.trackers import Trackers


def test_odd_rows_of_a_journal_stop_no_status(tmp_path):
    rows = ["[1]", "null", '{"step": "x"}', '{"step": null}', "\x00", digest.line({"step": 3})]
    (tmp_path / "metrics.jsonl").write_text("\n".join(rows))
    assert progress(tmp_path) == Progress(3)


def test_the_last_step_and_score_are_read(tmp_path):
    scores = [(10, 50.0), (20, 70.0), (30, 60.0)]
    rows = [{"event": "dev", "step": step, "epoch": 1.0, "accuracy": f} for step, f in scores]
    (tmp_path / "metrics.jsonl").write_text("".join(map(digest.line, rows)))
    assert progress(tmp_path) == Progress(30, dev="accuracy 60.0")


def test_steps_in_all_and_the_time_left_are_those_of_the_last_save(tmp_path):
    store = RunStore(tmp_path, {}, Trackers(tmp_path, "r", {}))
    store.log({"event": "step", "step": 30, "loss": 0.5})
    store.draft({}, {"step": 20, "of": 100, "pace": [10, 5.0], "group": []})()
    so_far = progress(tmp_path)
    assert (so_far.step, so_far.of, so_far.seconds_left) == (30, 100, 35.0)
    assert str(so_far) == "step 30 of 100, about 35 s left"


def test_an_older_save_has_no_total(tmp_path):
    store = RunStore(tmp_path, {}, Trackers(tmp_path, "r", {}))
    store.log({"event": "step", "step": 30, "loss": 0.5})
    store.draft({}, {"step": 20})()
    assert str(progress(tmp_path)) == "step 30" and progress(tmp_path).seconds_left is None


TOLD = {"run_id": "run", "group": "g", "names": {}, "seed": 1, "metric": "accuracy"}
TOLD |= {"learned_parameters": {"total": 1}, "config": {}, "metrics": {"test": {"accuracy": 1.0}}}


@pytest.fixture
def own(tmp_path):
    return tmp_path / "run"


def test_states_are_read_from_run_folders(own):
    assert str(state_of(own)) == "new"
    own.mkdir()
    assert str(state_of(own)) == "interrupted before its first save"
    tensors = {"learned.x": torch.zeros(1)}
    save_file(tensors, own / "state.safetensors", digest.packed({"state": json.dumps({"step": 7})}))
    assert str(state_of(own)) == "interrupted at step 7"
    failed = {**TOLD, "status": "failed", "reason": "loss nan at step 3"}
    (own / "failure.json").write_text(json.dumps(failed))
    assert str(state_of(own)) == "failed: loss nan at step 3"
    (own / "result.json").write_text(json.dumps({**TOLD, "status": "finished"}))
    assert str(state_of(own)) == "finished"
    (own / "result.json").write_text("{")
    assert str(state_of(own)).startswith("damaged: ")


def test_a_run_with_an_owner_is_running_until_it_is_finished(own):
    with held(own):
        assert state_of(own).kind == "running" and "process" in str(state_of(own))
        own.mkdir()
        assert state_of(own).kind == "running"
        (own / "result.json").write_text(json.dumps({**TOLD, "status": "finished"}))
        assert state_of(own).kind == "finished"


@pytest.mark.parametrize("content", [b"", b"\xff" * 8, b"\x02" + b"\0" * 7 + b"{}"])
def test_a_damaged_state_file_counts_as_step_0(own, content):
    own.mkdir()
    (own / "state.safetensors").write_bytes(content)
    assert str(state_of(own)) == "interrupted at step 0"
