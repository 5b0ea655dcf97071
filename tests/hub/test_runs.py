"""Runs on a model and a data set of the hub: what they record, and what they do when main moves."""

import io
import json
from dataclasses import replace

import pandas as pd
import pytest
from safetensors.torch import load, save

from ptrun.command import rerun, run
from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.folder import request
from ptrun.predicting.answering import ready
from ptrun.runs.plan import plan
from tests.hub.conftest import DATA, MODEL, data_files, model_files

BACKBONE = f"""
_target_: ptrun.backbone.pretrained.PretrainedBackbone
name: mine
hub: {MODEL}
revision: main
path: null
dtype: fp32
config: {{config}}
lr: {{prompt: 7e-2, full: 5e-4, encoder: 5e-3}}
"""
TASK = f"""
_target_: ptrun.task.classification.Classification
name: reviews
version: 1
source: {{hub: {DATA}, revision: main}}
splits: {{train: train, dev: validation, test: test}}
fields: [text]
label: label
labels: {{bad: bad, good: good}}
"""
TYPED = ["backbone=mine", "task=reviews", "method=prompt_tuning", "method.length=2", "keep=all"]
TYPED += ["readout=head", "train.max_steps=2", "train.batch_size=4", "hardware=cpu"]


@pytest.fixture
def project(tmp_path, hub, monkeypatch):
    """Return a folder with a backbone and a task whose revisions are `main`."""
    folder = tmp_path / "project"
    config = model_files()["config.json"].decode()
    for group, name, text in (
        ("backbone", "mine", BACKBONE.replace("{config}", config)),
        ("task", "reviews", TASK),
    ):
        (folder / "ptrun_conf" / group).mkdir(parents=True)
        (folder / "ptrun_conf" / group / f"{name}.yaml").write_text(text)
    monkeypatch.chdir(folder)
    return folder


def move_main(hub):
    """Give main other weights and other rows; return the new commits."""
    tensors = load(model_files()["model.safetensors"])
    changed = save({name: -tensor for name, tensor in tensors.items()})
    new = hub.push("models", MODEL, model_files(**{"model.safetensors": changed}))
    return new, hub.push("datasets", DATA, data_files("new"))


def mains(hub):
    return hub.repos["models", MODEL].refs["main"], hub.repos["datasets", DATA].refs["main"]


def the_run(root):
    (found,) = [file.parent for file in root.rglob("run.yaml") if "~" not in file.parent.name]
    return found


def commits(folder):
    """Return the commits of model and data in the manifest; run.yaml has the same."""
    manifest = json.loads((folder / "result.json").read_text())["manifest"]
    found = manifest["backbone"]["commit"], manifest["data"]["commits"][f"datasets/{DATA}@main"]
    kept = request.read(folder).commits
    assert (kept[f"models/{MODEL}@main"], kept[f"datasets/{DATA}@main"]) == found
    return found


def test_a_run_records_its_commits_and_resumes_on_them(project, hub, caplog):
    old = mains(hub)
    run.main(TYPED)
    folder = the_run(project / "outputs")
    assert commits(folder) == old and "is now at commit" not in caplog.text
    before = (folder / "predictions.jsonl").read_text()
    (folder / "result.json").unlink()  # so it was interrupted before it ended
    new = move_main(hub)
    run.main(TYPED)
    assert the_run(project / "outputs") == folder and commits(folder) == old
    assert (folder / "predictions.jsonl").read_text() == before
    told = [one.getMessage() for one in caplog.records if "is now at commit" in one.msg % one.args]
    assert len(told) == 2 and all("\n" not in line for line in told)
    for line, was, now, key in zip(told, old, new, ("backbone", "task.source"), strict=True):
        assert was in line and now in line and f"Type {key}.revision={now}" in line


@pytest.mark.slow
def test_rerun_and_predict_load_the_recorded_commits(project, hub, offline, caplog, capsys):
    old = mains(hub)
    run.main(TYPED)
    first = the_run(project / "outputs")
    new = move_main(hub)
    rerun.main([str(first)])
    again = the_run(project / "outputs" / "reruns")
    assert commits(again) == old and "this run keeps its recorded commit" in caplog.text
    assert "equal to the last bit" in capsys.readouterr().out
    run.main([*TYPED, "outputs=others"])  # downloads the new commits
    other = the_run(project / "others")
    assert commits(other) == new
    offline()
    for folder, kept in ((first, old), (other, new)):
        finished = ready(str(folder), [])
        finished.load()
        assert finished.backbone.commit == kept[0]


@pytest.mark.slow
def test_a_new_run_with_rerun_true_or_a_typed_revision_takes_the_new_commit(project, hub):
    run.main(TYPED)
    new = move_main(hub)
    folder = the_run(project / "outputs")
    run.main([*TYPED, f"backbone.revision={new[0]}", f"task.source.revision={new[1]}", "name=b"])
    typed = the_run(project / "outputs" / "b")
    assert typed.name != folder.name
    assert set(request.read(typed).commits.values()) == set(new)
    run.main([*TYPED, "rerun=true"])
    assert commits(folder) == new


@pytest.mark.slow
def test_an_interrupted_rerun_on_another_branch_resumes_on_its_own_commit(project, hub):
    run.main(TYPED)
    refs = hub.repos["models", MODEL].refs
    refs["dev"], _ = move_main(hub)
    typed = [str(the_run(project / "outputs")), "backbone.revision=dev"]
    rerun.main(typed)
    folder = the_run(project / "outputs" / "reruns")
    commit = request.read(folder).commits[f"models/{MODEL}@dev"]
    (folder / "result.json").unlink()
    refs["dev"] = next(iter(hub.repos["models", MODEL].commits))
    rerun.main(typed)
    assert refs["dev"] != commit == request.read(folder).commits[f"models/{MODEL}@dev"]


@pytest.mark.slow
def test_a_start_from_another_run_takes_its_commits(project, hub):
    old = mains(hub)
    run.main(TYPED)
    first = the_run(project / "outputs")
    move_main(hub)
    run.main([*TYPED, f"start=run:{first.resolve()}", "name=second"])
    assert commits(the_run(project / "outputs" / "second")) == old


def test_a_damaged_record_of_commits_is_refused(project, hub):
    run.main(TYPED)
    folder = the_run(project / "outputs")
    (folder / "result.json").unlink()
    file = folder / "run.yaml"
    file.write_text(file.read_text().replace(mains(hub)[0], "../../elsewhere"))
    with pytest.raises(UserError, match=r"run\.yaml: damaged .*rerun=true"):
        run.main(TYPED)


def test_a_data_set_of_the_hub_is_read_as_one_s_own(project, hub, offline, capsys, caplog):
    own = ["task=hub", f"task.hub={DATA}", "task.text=text", "task.label=label", "task.dev=test"]
    typed = [one for one in TYPED if one != "task=reviews"]
    with pytest.raises(UserError, match=r"no split 'test2'"):
        run.main([*typed, *own, "task.train=test2"])
    run.main([*typed, *own])
    folder = the_run(project / "outputs")
    assert f"hub_{DATA.rpartition('/')[2]}" in folder.name
    assert commits(folder) == mains(hub)
    data = json.loads((folder / "result.json").read_text())["manifest"]["data"]
    assert data["rows"]["train"] == {"read": 12, "left_out": {}}
    move_main(hub)
    offline()
    finished = ready(str(folder), [])
    finished.load()
    assert list(finished.task.labels) == ["bad", "good"]
    with pytest.raises(UserError, match="no column 'review'"):
        run.main([*typed, *own, "task.text=review"])


def pairs(hub, word):
    """Push rows of prompts and completions, and return their commit."""
    rows = [{"prompt": f"{word} {i}", "completion": f"{i}"} for i in range(8)]
    written = io.BytesIO()
    pd.DataFrame(rows).to_parquet(written)
    files = {"README.md": b"---\n---\n", "data/train-00000-of-00001.parquet": written.getvalue()}
    return hub.push("datasets", "someone/pairs", files)


def test_columns_of_a_data_set_are_recognised_and_its_rows_are_those_of_its_commit(hub):
    old = pairs(hub, "say")
    composed = compose_run(
        ["task=hub", "task.hub=someone/pairs", "backbone=pocket_gpt2", "method=lora"]
    )
    first = plan(composed)
    assert first.request.task["answer"] == "completion"
    assert first.task.load("train")[0].fields == {"prompt": "say 0"}
    (repository,) = first.task.repositories
    new = pairs(hub, "write")
    again = plan(replace(composed, commits={repository.key: old}))  # as a resumed run is planned
    assert again.task.load("train")[0].fields == {"prompt": "say 0"} and old != new
    assert plan(composed).task.load("train")[0].fields == {"prompt": "write 0"}
