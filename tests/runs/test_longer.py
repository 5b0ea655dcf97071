"""`continue=`: a run that goes on is the run that was not interrupted; else it says what is new."""

import json
import logging
import shutil

import pytest
import torch
from safetensors.torch import load_file

from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.folder import request, result
from ptrun.folder.find import find
from ptrun.planning.costs import Costs, texts
from ptrun.runs.launch import launch
from ptrun.runs.plan import plan
from ptrun.runs.rerun import again
from ptrun.training import stopping
from tests.facts import ROWS as FACTS
from tests.facts import facts
from tests.run_folders import assert_same, rows
from tests.tiers import tiered

STEADY = ["train.schedule=constant", "train.eval_every=2", "train.lr=3e-2"]
WRITES = ["task=pocket_writing", "+task.source.rows={train: 8, validation: 4, test: 4}"]
WRITES += ["readout.max_new_tokens=3", "task.pvps={told: {pattern: '{facts} {mask}'}}"]
RELATIONS = ["task=lama", "method=ptuning", "readout.pattern=asked", "train.patience=9"]
RELATIONS += ["task.pvps={asked: {pattern: '{soft:2} {sub_label} {mask}'}}"]
BY_EPOCHS = ["train.epochs=1", "train.max_steps=null", "train.eval_every=3"]
CASES = {
    "ptuning_v2": (["method=ptuning_v2", "method.length=3", "method.dropout=0.2"], "bert"),
    "prompt_tuning": (["method=prompt_tuning", "train.optimizer=adam"], "bert"),
    "lora_writes": (["method=lora", "method.dropout=0.3", *WRITES], "llama"),
    "encoder": (["method=ptuning_v2", "method.reparameterization=mlp", "method.hidden=8"], "bert"),
    "parts": (RELATIONS, "bert"),
    "fine_tuning": ([*BY_EPOCHS, "method=fine_tuning"], "bert"),
    "frozen": (["method.length=3", "method.frozen_vectors=1", "start=context:good film"], "bert"),
}


@pytest.fixture(autouse=True)
def told(caplog):
    caplog.set_level(logging.INFO, "ptrun")


@pytest.fixture
def typed(small, data_dir):
    """Return a function that composes a run which keeps its state."""
    facts(data_dir, rows=FACTS)
    return lambda *overrides, **given: small(*STEADY, "keep=all", *overrides, **given)


def refused(composed):
    with pytest.raises(UserError) as error:
        plan(composed)
    return str(error.value)


def longer(case):
    return "train.epochs=2" if "train.epochs=1" in case else "train.max_steps=12"


@pytest.mark.parametrize("case", tiered(CASES, lambda case: case in ("ptuning_v2", "lora_writes")))
def test_a_run_that_goes_on_is_the_run_that_was_not_interrupted(typed, tmp_path, case, caplog):
    """Tensors, optimizer, journal, selection and predictions, bit for bit."""
    line, backbone = CASES[case]
    first = launch(typed(*line, backbone=backbone))
    more = longer(line)
    unbroken = typed(*line, more, "name=unbroken", backbone=backbone)
    launch(unbroken)
    line = [option for option in line if not option.startswith("start=")]
    went_on = typed(*line, more, f"continue=run:{first.run_id}", backbone=backbone)
    done, planned = launch(went_on), plan(went_on)
    assert "begin anew" not in caplog.text and "now reaches" not in caplog.text
    files = [file.name for file in planned.folder.glob("*.safetensors")]
    assert_same(planned.folder, plan(unbroken).folder, files)
    for event in ("dev", "test"):
        assert rows(planned.folder, event) == rows(plan(unbroken).folder, event)
    names = {"steps", "best_step", "candidates", "history", "parts", "prompt"}
    other = result.read(plan(unbroken).folder)
    assert all(done.manifest.get(name) == other.manifest.get(name) for name in names)
    assert done.metrics == other.metrics and done.run_id not in (first.run_id, other.run_id)
    record = done.manifest["continued_from"]
    assert record["run_id"] == first.run_id and record["steps"] == first.manifest["steps"]
    assert request.needs(planned.folder) == (first.run_id,)


def test_a_run_that_goes_on_resumes_reruns_and_goes_on_again(typed, tmp_path, monkeypatch):
    first = launch(typed())
    went_on = typed("train.max_steps=12", f"continue=run:{first.run_id}")
    monkeypatch.setattr(stopping, "received", lambda: 15)  # a signal at its next step
    with pytest.raises(stopping.Stopped):
        launch(went_on)
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path.parent)  # a rerun writes below the current folder
    folder = plan(went_on).folder
    assert not (folder / "result.json").exists() and len(rows(folder)) == 7
    done = launch(went_on)
    rerun = again(find(str(folder), "rerun"), [])
    assert launch(rerun).metrics == done.metrics and plan(rerun).run_id == done.run_id
    assert_same(folder, plan(rerun).folder)
    shutil.copytree(plan(typed()).folder, tmp_path / "moved")
    assert plan(typed("train.max_steps=12", f"continue={tmp_path / 'moved'}")).folder == folder
    third = launch(typed("train.max_steps=14", f"continue={folder}"))
    assert third.manifest["steps"] == 14 and third.manifest["continued_from"]["steps"] == 12


def test_what_must_be_equal_is_refused_by_name(typed):
    first = launch(typed("method.length=3"))
    run = [f"continue=run:{first.run_id}", "method.length=3"]
    for override, message in (
        ("train.max_steps=6", "6 steps are done, none is left. Type a larger train.max_steps"),
        ("train.max_steps=null", "Type a larger train.max_steps"),
        ("method.length=4", "method.length is 4 here and 3 there"),
        ("method=prompt_tuning", "method is prompt_tuning here and ptuning_v2 there"),
        ("readout=entailment", "readout is entailment here and head there"),
        ("seed=2", "seed is 2 here and 1 there"),
        ("data_seed=2", "data_seed is 2 here and 1 there"),
        ("train.batch_size=3", "train.batch_size is 3 here and 2 there"),
        ("readout.pooler=mean", "readout.pooler is mean here and the default there"),
        ("hardware.precision=bf16", "hardware.precision is bf16 here and fp32 there"),
        ("start=labels", "Leave out start="),
        ("continue=run:nix", "continue nix: no such folder, and no run below"),
        ("continue=", "continue .* holds 1 runs"),
    ):
        message = message.replace("continue .* ", "")
        overrides = dict(o.split("=", 1) for o in ["train.max_steps=12", *run, override])
        text = refused(typed(*(f"{key}={value}" for key, value in overrides.items())))
        assert message in text and "\n\n" not in text, override


def test_a_run_that_stopped_early_needs_more_patience(typed):
    line = ["train.patience=1", "train.max_steps=40", "train.lr=1e-9"]
    first = launch(typed(*line))
    assert first.manifest["steps"] == 4
    line += ["train.max_steps=60", f"continue=run:{first.run_id}"]
    del line[1]
    assert "train.patience (evaluations without progress at its end: 1)" in refused(typed(*line))
    done = launch(typed(*line[1:], "train.patience=3"))
    assert done.manifest["steps"] == 8


@pytest.mark.parametrize("schedule", ["linear", "constant"])
def test_a_schedule_that_depends_on_the_end_and_another_rate_are_told(typed, schedule):
    first = launch(typed(f"train.schedule={schedule}"))
    line = [f"train.schedule={schedule}", "train.max_steps=12", f"continue=run:{first.run_id}"]
    told = [w for w in launch(typed(*line)).manifest["warnings"] if w.startswith("continue: ")]
    expected = (
        "schedule=linear now reaches to step 12: the rate of step 6 was 0.005, the next is 0.015"
    )
    assert told == [f"continue: train.{expected}"] * (schedule == "linear")
    warnings = launch(typed(*line, "train.lr=0.01")).manifest["warnings"]
    assert any("train.lr is 0.01 from step 7 on, and was 0.03" in text for text in warnings)


@pytest.mark.parametrize("without", ["state", "rows"])
@pytest.mark.parametrize("method", tiered(["prompt_tuning", "lora"], lambda m: m == "lora"))
def test_prompt_and_head_go_on_without_the_state(typed, data_dir, caplog, method, without):
    line = [f"method={method}", f"keep={'none' if without == 'state' else 'state'}"]
    launch(typed(*line))
    folder = plan(typed(*line)).folder
    if without == "rows":
        file = data_dir / "sst2" / "train.jsonl"
        file.write_text(file.read_text().replace("dull", "bright"))
    still = [*line, "train.lr=1e-12", "train.max_steps=1", f"continue={folder}"]
    still += ["protocol=paper"] if without == "rows" else []
    done = launch(typed(*still))
    ours, theirs = (
        load_file(f / "prompt.safetensors") for f in (plan(typed(*still)).folder, folder)
    )
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        torch.testing.assert_close(tensor, theirs[name], atol=1e-9, rtol=0)
    assert "start=run:" not in caplog.text
    (warning,) = [text for text in done.manifest["warnings"] if "begin anew" in text]
    assert (
        "it kept no state" if without == "state" else "it had other rows (data, protocol)"
    ) in warning
    assert done.manifest["steps"] == 1 and done.manifest["continued_from"]["steps"] == 0
    assert done.manifest["started_from"] is None and done.manifest["continued_from"]["run_id"]


def test_rows_with_other_labels_are_refused(tmp_path, tiny_folder):
    for name, labels in (("a", "xy"), ("b", "xyz")):
        lines = [
            f"{word} {n},{label}"
            for n in range(12)
            for word, label in zip("uvw", labels, strict=False)
        ]
        (tmp_path / f"{name}.csv").write_text("\n".join(["text,label", *lines]) + "\n")
    line = [f"backbone.path={tiny_folder('bert')}", "task=csv", "train.max_steps=2"]
    line += ["task.text=text", "task.label=label", f"outputs={tmp_path}", "keep=state"]
    first = launch(compose_run([*line, f"task.train={tmp_path / 'a.csv'}"]))
    line += [f"continue=run:{first.run_id}", f"task.train={tmp_path / 'b.csv'}"]
    with pytest.raises(UserError, match=r"labels and patterns .*'x', 'y'\].*'z'\].*start=run:"):
        launch(compose_run(line))


def test_a_longer_run_beside_a_finished_one_names_it(typed, caplog):
    launch(typed("train.max_steps=2"))
    launch(typed("train.max_steps=3", "method.length=3"))
    first = launch(typed("train.max_steps=4", "keep=none"))
    assert caplog.text.count("is finished at 2 steps") == caplog.text.count("is finished at") == 1
    launch(typed("train.max_steps=5"))
    assert f"{first.run_id} is finished at 4 steps with the same options" in caplog.text
    assert f"continue=run:{first.run_id} goes on from there with a new optimizer" in caplog.text
    launch(typed("train.max_steps=1"))
    launch(typed("train.max_steps=8", "train.batch_size=3"))
    assert caplog.text.count("is finished at") == 2


def test_an_id_without_the_key_has_no_trace_of_it(typed):
    assert "continue" not in plan(typed()).content
    assert json.dumps(plan(typed()).content).count("continue") == 0


def test_a_plan_counts_the_steps_that_are_left(typed):
    first = launch(typed())
    planned = plan(typed("train.max_steps=9", f"continue=run:{first.run_id}"))
    assert Costs(planned, texts(planned, None)).steps() == 3
