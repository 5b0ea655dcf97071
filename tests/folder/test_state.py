"""The state of a run, from its folder alone."""

import json

import pytest
import torch
from safetensors.torch import save_file

from ptrun.folder.digest import packed
from ptrun.folder.lease import held
from ptrun.folder.scan import state_of

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
    save_file(tensors, own / "state.safetensors", packed({"state": json.dumps({"step": 7})}))
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
