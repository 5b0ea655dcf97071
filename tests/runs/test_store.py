"""Run folders: atomic, bound to their backbone, cut back on resume, never confused."""

import json
import logging
from types import SimpleNamespace

import pytest
import torch

from ptrun.errors import UserError
from ptrun.folder import digest, result
from ptrun.folder.store import RunStore, read_tensors, set_aside, state_file
from ptrun.hardware.ranks import Ranks
from ptrun.runs.shared_store import SharedStore
from ptrun.task.extraction import Answer
from ptrun.tracking.trackers import Trackers
from ptrun.types import Example, Prediction, RunResult

BOUND = {"name": "tiny", "revision": "None", "weights": "abc"}


@pytest.fixture
def store(tmp_path):
    return RunStore(tmp_path / "run", BOUND, Trackers(tmp_path, "run", {}))


def outcome(**changes):
    values = {
        **{"run_id": "r", "group": "g", "status": "finished", "seed": 1, "metric": "f1"},
        "names": dict.fromkeys(("task", "method", "backbone", "setting", "protocol"), "x"),
        "metrics": {"dev": {"f1": 50.0}, "test": {"f1": 40.0}},
        "learned_parameters": {"total": 3},
        "config": {"method": {"length": 1}},
    }
    return RunResult(**{**values, **changes})


def journal(store, *steps):
    for step in steps:
        store.log({"event": "step", "step": step, "loss": 0.1, "text": "a\u2028b"})
    store.log({"event": "dev", "step": steps[-1], "f1": 1.5})
    history = [{"step": steps[-1], "f1": 1.5}]
    store.draft({"x": torch.ones(2)}, {"step": steps[-1], "history": history})()
    return store.folder / "metrics.jsonl"


@pytest.fixture
def told(caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("ptrun"), "propagate", True)
    return lambda: caplog.text


def test_a_whole_journal_comes_back_without_a_word(store, told):
    file = journal(store, 1, 2)
    before = file.read_bytes()
    store.restore()
    assert file.read_bytes() == before and not told()


@pytest.mark.parametrize(("end", "damaged"), [(b'{"event": "st', False), (b"\xff\n", True)])
def test_rows_after_the_save_and_what_a_killed_process_left_are_cut(store, told, end, damaged):
    file = journal(store, 1, 2)
    store.log({"event": "step", "step": 3, "loss": 0.1})
    store.log({"event": "selection_done", "best_step": 3})
    before = file.read_bytes()
    file.write_bytes(before + end)
    tensors, meta = store.restore()
    assert torch.equal(tensors["x"], torch.ones(2)) and meta["history"][0]["f1"] == 1.5
    assert meta["losses"] == [0.1, 0.1]
    assert before.startswith(file.read_bytes()) and ("damaged" in told()) == damaged
    assert [digest.row(own)["step"] for own in file.read_text().split("\n")[:-1]] == [1, 2, 2]


@pytest.mark.parametrize("line", ["\x00", "", "[1]", '{"event": "step", "step": 2, "loss": 7}'])
def test_a_damaged_line_is_named_and_stops_no_resume(store, told, line):
    file = journal(store, 1, 2, 3)
    lines = file.read_text().split("\n")
    lines[1] = line if "loss" not in line else lines[1].replace("0.1", "0.7")
    file.write_text("\n".join(lines))
    assert store.restore() is not None
    assert f"{file}:2: damaged" in told() and "1 earlier rows are lost" in told()
    assert [digest.row(own)["step"] for own in file.read_text().split("\n")[:-1]] == [1, 3, 3]


def test_rows_that_were_cut_off_are_told(store, told):
    file = journal(store, 1, 2)
    file.write_text(file.read_text()[: file.read_text().index('{"event": "dev"')])
    store.restore()
    assert f"{file}: damaged (1 earlier rows are lost)" in told()


def test_drafts_of_killed_processes_are_removed(store):
    journal(store, 1)
    kept = {own.name for own in store.folder.iterdir()}
    for name in (".state.safetensors.4711", ".run.yaml.12"):
        (store.folder / name).write_text("half")
    store.clean()
    assert {own.name for own in store.folder.iterdir()} == kept


def test_without_a_state_a_run_starts_with_clean_metrics(store):
    store.log({"event": "dev", "step": 0, "f1": 0.1})  # before the first step
    store.log({"event": "step", "step": 1, "loss": 0.1})
    assert store.restore() is None
    assert (store.folder / "metrics.jsonl").read_text() == ""


def test_a_prompt_of_another_backbone_is_refused_and_damage_is_named(store):
    store.write_prompt({"prompt": torch.ones(1)}, {"length": 1}, {})
    file = store.folder / "prompt.safetensors"
    assert read_tensors(file, BOUND)[0].keys() == {"prompt"}
    told = r"made with backbone tiny \(abc\), not other \(def\). Use that backbone"
    with pytest.raises(UserError, match=told):
        read_tensors(file, {"name": "other", "revision": "None", "weights": "def"})
    file.write_bytes(file.read_bytes()[:20])
    with pytest.raises(UserError, match="damaged"):
        read_tensors(file, BOUND)


def test_no_draft_is_left_and_a_failure_gives_way_to_a_result(store):
    store.close(outcome(status="failed", reason="loss nan", metrics={}))
    assert result.read(store.folder).reason == "loss nan"
    store.close(outcome())
    assert sorted(file.name for file in store.folder.iterdir()) == ["result.json"]
    assert result.read(store.folder) == outcome()


def test_a_number_that_was_deleted_is_free_again(tmp_path):
    folder = tmp_path / "run"
    (tmp_path / "run~2").mkdir()
    for name in ("run~1", "run~3"):
        folder.mkdir()
        set_aside(folder)
        assert (tmp_path / name).is_dir()


def test_runs_set_aside_are_kept_and_not_reported(store):
    store.close(outcome())
    root = store.folder.parent
    set_aside(store.folder)
    assert result.read_all(root) == ({}, []) and (root / "run~1" / "result.json").is_file()


def test_a_part_has_a_state_and_rows_of_its_own(store, told):
    seen = []
    store.tracker = SimpleNamespace(log=seen.append)
    first, other = store.part("P1"), store.part("a/b")
    assert store.part("") is store
    for step in (1, 2):
        for own in (store, first, other):
            own.log({"event": "step", "step": step})
    assert [row.get("part") for row in seen] == [None, "P1", "a/b"] * 2
    first.draft({"x": torch.ones(1)}, {"step": 1, "history": []})()
    names = sorted(file.name for file in store.folder.glob("*.safetensors"))
    assert names == ["P1.state.safetensors"] and first.restore()[1]["step"] == 1 and not told()
    lines = (store.folder / "metrics.jsonl").read_text().split("\n")[:-1]
    left = [(row.get("part"), row["step"]) for row in map(digest.row, lines)]
    assert left == [(None, 1), ("P1", 1), ("a/b", 1), (None, 2), ("a/b", 2)]
    assert state_file(store.folder).name == "state.safetensors"
    assert state_file(store.folder, "a/b").name == "a%2Fb.state.safetensors"


def test_a_prompt_has_its_method_its_task_and_its_backbone(store):
    store.write_prompt({"x": torch.ones(2)}, {"length": 2}, {"labels": ["é"]})
    tensors, header = read_tensors(store.folder / "prompt.safetensors", BOUND)
    assert tensors["x"].tolist() == [1.0, 1.0]
    assert {key: json.loads(value) for key, value in header.items()} == {
        "method": {"length": 2},
        "task": {"labels": ["é"]},
        "backbone": BOUND,
    }


def test_predictions_are_lines_with_plain_targets(store):
    examples = [Example("a", {}, "é"), Example("b", {}, [Answer("x", 3)])]
    predictions = [Prediction("a", "y", {"other": 1}), Prediction("b", "x")]
    store.write_predictions(examples, predictions)
    text = (store.folder / "predictions.jsonl").read_text("utf-8")
    assert "é" in text and [json.loads(line) for line in text.splitlines()] == [
        {"id": "a", "prediction": "y", "other": 1, "target": "é"},
        {"id": "b", "prediction": "x", "target": [{"text": "x", "start": 3}]},
    ]
    with pytest.raises(ValueError):
        store.write_predictions(examples, predictions[:1])


def test_one_process_goes_on_from_what_it_saved_and_refuses_what_two_did(tmp_path):
    own = {"world": Ranks(), "tuned": True}
    shared = SharedStore(tmp_path, BOUND, Trackers(tmp_path, "r", {}), **own)
    shared.draft({"learned.w": torch.ones(2)}, {"step": 1})()
    tensors, meta = shared.restore()
    assert torch.equal(tensors["learned.w"], torch.ones(2)) and meta["step"] == 1
    RunStore.draft(shared, {}, {"step": 1, "ranks": 2, "model_parallel": 1})()
    with pytest.raises(UserError, match=r"saved by 2 ranks.*Start as many, or type rerun=true"):
        shared.restore()
