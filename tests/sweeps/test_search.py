"""What a search refuses, because it would choose by what it reports or lose its trials."""

import json
from types import SimpleNamespace

import pytest

from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.metrics import selection_bias
from ptrun.runs.launch import launch
from ptrun.sweeps import search as own
from ptrun.sweeps.job import Job
from ptrun.sweeps.search import _has_ended, search


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("sweep.dry_run=true", r"leave out sweep\.dry_run"),
        ("sweep.shard=1/2", r"leave out sweep\.dry_run and sweep\.shard"),
        ("sweep.on=slurm", r"type sweep\.wait=true too"),
    ],
)
def test_a_round_needs_all_its_trials(tmp_path, typed, message):
    overrides = (f"outputs={tmp_path}", "train.lr=1e-3,1e-2", typed)
    with pytest.raises(UserError, match=message):
        search(overrides, trials=2, together=2, seeds=1, sampler="tpe")
    assert not list(tmp_path.iterdir())


def test_a_trial_whose_dev_set_is_reported_is_refused(data_dir, tiny_folder, tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_text("text,label\n" + "".join(f"film {n},{'ab'[n % 2]}\n" for n in range(20)))
    given = ["task=csv", f"task.train={rows}", f"task.dev={rows}", f"task.test={rows}"]
    given += ["task.text=text", "task.label=label", "protocol=paper", "method.length=3"]
    given += [f"backbone.path={tiny_folder('bert')}", f"outputs={tmp_path / 'out'}", "trial={}"]
    with pytest.raises(UserError, match="the search would choose by what it reports"):
        launch(compose_run([*given, "train.max_steps=1"]))


def test_floors_that_are_no_numbers_are_refused():
    with pytest.raises(UserError, match=r"trial=.*ptrun search sets it"):
        _ = compose_run(["trial=[1,2]"]).trial


def test_the_report_of_another_search_is_not_replaced(tmp_path):
    file = tmp_path / "runs" / "search.json"
    file.parent.mkdir()
    before = {"request": {"command": [], "together": 4, "sampler": "tpe"}}
    file.write_text(json.dumps(before))
    typed = ["task=pocket_ner", "method=lora", f"outputs={tmp_path}", "train.lr=choice(0.1,0.2)"]
    with pytest.raises(UserError, match=r"ptrun search with another command .* name=NAME"):
        search(typed, trials=2, together=4, seeds=1, sampler="tpe")
    assert json.loads(file.read_text()) == before


@pytest.mark.parametrize(
    ("stage", "files", "ended"),
    [
        ("finished", ["result.json"], True),
        ("failed", ["failure.json"], True),
        ("failed", ["metrics.jsonl"], False),  # the disk was full
        ("refused", None, True),  # a combination that is refused has no folder
        ("refused", ["run.yaml"], False),
        ("interrupted", ["state.safetensors"], False),
    ],
)
def test_a_trial_that_could_end_otherwise_is_not_written_off(tmp_path, stage, files, ended):
    folder = None if files is None else tmp_path / "run"
    for name in files or ():
        folder.mkdir(exist_ok=True)
        (folder / name).touch()
    job = Job(0, "a trial", [])
    job.stage, job.folder = stage, folder
    assert _has_ended(job) is ended


@pytest.mark.parametrize(("lengths", "tried"), [("5,10", 2), ("range(1,9)", 6)])
def test_few_combinations_are_each_tried_once(tmp_path, monkeypatch, lengths, tried):
    """A second run of a combination is the same run, and no second chance of a high score."""
    seen = []

    def do(study, size, _):
        for trial in study.round(size):
            seen.append(tuple(trial.params.items()))
            study.tell(trial, 50.0 + int(trial.params["method.length"]), [])

    def done(*_):
        metrics = {"dev": {"accuracy": 60.0}, "test": {"accuracy": 60.0}}
        facts = {"answered": {"dev": 100}}
        return [
            SimpleNamespace(metric="accuracy", metrics=metrics, manifest=facts, seed=2, run_id="r")
        ]

    (tmp_path / "runs").mkdir()
    monkeypatch.setattr(own, "_do", do)
    monkeypatch.setattr(own, "_fresh", done)
    overrides = (f"outputs={tmp_path}", f"method.length={lengths}", "task=pocket_sentiment")
    found = search(overrides, trials=6, together=3, seeds=1, sampler="tpe")
    assert len(seen) == tried == found["candidates"]
    values = [50.0 + int(length) for ((_, length),) in set(seen)]
    assert found["expected_selection_bias"] == pytest.approx(selection_bias(values, 100))
