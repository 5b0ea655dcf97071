"""Folders and files of an older version load: read-outs were keys of `method` there."""

import logging
import shutil
from pathlib import Path

import pytest

import ptrun
from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.folder import request, result
from ptrun.folder.find import find
from ptrun.pocket.tasks import rows
from ptrun.runs.launch import launch
from ptrun.runs.plan import plan
from ptrun.runs.rerun import again

KEPT = sorted((Path(__file__).parents[1] / "data" / "runs_20f99f5").iterdir())
READ = [{"pooler": "mean", "dropout": 0.2}, {}, {"bias": True, "direction": "sigma"}]


@pytest.fixture(params=KEPT, ids=["head", "verbalizer", "class_words"])
def old(request, tmp_path, monkeypatch):
    """Return a run folder of commit 20f99f5, below the current folder."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "outputs" / "runs" / request.param.name
    shutil.copytree(request.param, folder)
    return folder


def test_its_read_out_has_today_s_keys(old):
    done, kept = result.read(old), request.read(old)
    wanted = READ[[one.name for one in KEPT].index(old.name)]
    assert {k: v for k, v in done.config["readout"].items() if k != "_target_"} == wanted
    assert kept.config["readout"] == done.config["readout"]
    assert kept.names["readout"] == done.names["readout"] != "auto"
    assert not {"readout", "pattern", "pooler"} & done.config["method"].keys()


def test_it_predicts_what_it_predicted_and_is_in_a_report(old):
    run = ptrun.load(old)
    task = run.config["task"]
    asked = [row for row, _ in zip(rows(task["name"], "test"), range(20), strict=False)]
    answers = run.predict([{field: row[field] for field in task["fields"]} for row in asked])
    assert [a["prediction"] for a in answers] == [p["prediction"] for p in run.predictions[:20]]
    (row,) = ptrun.report("outputs").rows
    assert row["task"] == task["name"]


@pytest.mark.slow
def test_its_rerun_has_the_same_numbers(old):
    done = launch(again(find(str(old), "rerun", Path("outputs")), []))
    assert done.metrics == result.read(old).metrics


def test_typed_keys_are_read_with_a_line_that_says_what_to_type(caplog):
    caplog.set_level(logging.WARNING)
    own = ["task=pocket_sentiment", "method=ptuning_v2", "backbone=pocket_t5"]
    older = compose_run([*own, "method.readout=verbalizer", "method.sentinel=false"])
    assert "Type readout=verbalizer readout.sentinel=false" in caplog.text
    named = compose_run([*own, "readout=verbalizer", "readout.sentinel=false"])
    assert plan(older).run_id == plan(named).run_id
    with pytest.raises(UserError, match=r"readout\.pooler: .*no such key"):
        plan(compose_run([*own, "method.readout=verbalizer", "method.pooler=mean"]))


def test_a_file_of_the_user_s_own_has_them_too(tmp_path, monkeypatch):
    folder = tmp_path / "ptrun_conf" / "method"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text(
        "# @package _global_\n# Mine.\nmethod:\n  _target_: ptrun.method.lora.LoRA\n  rank: 2\n"
        "  alpha: 4\n  readout: verbalizer\n  pattern: null\ntrain: {lr: 1e-3}\n"
    )
    monkeypatch.chdir(tmp_path)
    planned = plan(compose_run(["method=mine", "task=pocket_sentiment"]))
    assert planned.names["readout"] == "verbalizer"
