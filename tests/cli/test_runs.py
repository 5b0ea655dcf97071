"""The installed command end to end: a run, its files, a sweep, a resume after kill -9, a report."""

import json

import pytest
from safetensors.torch import load_file
from seqeval.metrics import f1_score

from tests.cli.test_signals import until
from tests.run_folders import assert_same, rows
from tests.task.tables import delimited, reviews


def test_a_run_leaves_everything_that_makes_it_checkable(ptrun):
    done = ptrun.fresh(*ptrun.small("task=conll03"))
    assert done.returncode == 0, done.stderr
    (file,) = ptrun.results()
    result, folder = json.loads(file.read_text()), file.parent
    assert folder.name == result["run_id"] and result["status"] == "finished"
    assert result["learned_parameters"]["prompt"] == 2 * 3 * 3 * 32
    answers = [json.loads(line) for line in (folder / "predictions.jsonl").read_text().splitlines()]
    golds, guesses = ([a[key] for a in answers] for key in ("target", "prediction"))
    assert result["metrics"]["test"]["f1"] == 100 * f1_score(golds, guesses)
    prompt = load_file(folder / "prompt.safetensors")
    assert prompt["prompt.prefix"].shape == (3, 6, 2, 16)
    facts = result["manifest"]
    assert facts["backbone"]["frozen_verified"] is True
    assert facts["data"]["train"]["count"] == 6 and len(facts["data"]["train"]["ids"]) == 6
    assert {"versions", "git_commit", "seconds", "peak_memory_mib", "candidates"} <= set(facts)
    journal = (folder / "metrics.jsonl").read_text().splitlines()
    events = [json.loads(line)["event"] for line in journal]
    assert events.index("selection_done") < events.index("test") and events.count("test") == 1
    assert f"test f1 {result['metrics']['test']['f1']:.2f}" in done.stdout


@pytest.mark.slow
def test_a_run_of_a_sweep_is_the_run_alone_to_the_bit(ptrun):
    """A task whose labels are in no alphabetical order, which the head's rows follow."""
    line = ["task=pocket_topics", "method=prompt_tuning", "setting=few_shot_32"]
    line += ["train.max_steps=3", "train.batch_size=4"]
    alone, swept = (
        ptrun(*line, f"outputs={name}", *more) for name, more in (("a", ()), ("b", ("-m",)))
    )
    assert alone.returncode == swept.returncode == 0, alone.stderr + swept.stderr
    one, other = (file.parent for file in ptrun.results())
    assert one.name == other.name and one != other
    assert_same(one, other)


def test_a_finished_run_is_skipped_and_rerun_sets_it_aside(ptrun):
    first = ptrun(*ptrun.small())
    (file,) = ptrun.results()
    written = file.stat().st_mtime_ns
    assert ptrun(*ptrun.small()).stdout == first.stdout and file.stat().st_mtime_ns == written
    assert ptrun(*ptrun.small("rerun=true")).returncode == 0
    assert file.stat().st_mtime_ns > written
    assert file.parent.with_name(f"{file.parent.name}~1").is_dir()


@pytest.mark.slow
def test_a_killed_run_goes_on_bit_for_bit(ptrun):
    overrides = ptrun.small("train.max_steps=120", "train.eval_every=20", "keep=state")
    whole = ptrun(*overrides, "outputs=whole")
    assert whole.returncode == 0, whole.stderr
    with ptrun.start(*overrides, "outputs=cut") as running:  # its end is a kill
        cut = until(ptrun, running, 50)
    assert (cut / "state.safetensors").exists()
    assert not (cut / "result.json").exists(), "the run was over before it could be killed"
    assert ptrun(*overrides, "outputs=cut").returncode == 0
    same = ptrun.folder / "whole" / cut.relative_to(ptrun.folder / "cut")
    assert_same(cut, same, ["prompt.safetensors", "state.safetensors"])
    assert len(rows(cut)) == 120 and rows(cut, "dev") == rows(same, "dev")
    assert (cut / "predictions.jsonl").read_text() == (same / "predictions.jsonl").read_text()


@pytest.mark.slow
def test_a_sweep_goes_on_past_a_failed_job_and_reports_mean_and_failures(ptrun):
    small = ptrun.small("train.clip=null")
    swept = ptrun("-m", *small, "seed=1,2", "name=sweep")
    assert swept.returncode == 0
    assert [word for word in swept.stdout.splitlines() if word.startswith("2 runs")]
    assert "mean ± standard deviation over seeds" in swept.stdout.splitlines()[-1]
    lost = ptrun("-m", *small, "train.lr=1e30", "seed=1", "name=sweep")
    assert lost.returncode == 1 and "failed: loss" in lost.stderr
    again = ptrun(*small, "train.lr=1e30", "seed=1", "name=sweep")
    assert again.returncode == 1 and "rerun=true" in again.stderr
    assert len(ptrun.results()) == 2
    report = ptrun("report", "outputs").stdout
    assert "train.lr=0.07" in report and "train.lr=1e+30" in report and "±" in report


@pytest.mark.slow
def test_wandb_works_offline_without_a_key(ptrun):
    ptrun.environment = {"HOME": str(ptrun.folder)}
    done = ptrun(*ptrun.small("tracking=wandb"))
    assert done.returncode == 0, done.stderr
    assert len(ptrun.results()) == 1 and list(ptrun.folder.rglob("offline-run-*"))


@pytest.mark.slow
def test_help_and_list_name_the_options(ptrun):
    text = ptrun.fresh("--help").stdout
    assert "Convert a checkpoint, or a data set" in text and "method=ptuning_v2" in text
    assert ptrun.fresh("--version").stdout.startswith("ptrun ")
    listed = ptrun("list", "task").stdout
    assert "task=pocket_ner" in listed and "CoNLL-2003" in listed
    composed = ptrun("--cfg", "job", "seed=9").stdout
    assert "seed: 9" in composed


def test_a_table_is_checked_and_takes_settings_that_sample(ptrun):
    (ptrun.folder / "reviews.csv").write_text(delimited(reviews()))
    table = ["task=csv", "task.train=reviews.csv", "task.text=text", "task.label=label"]
    done = ptrun("check", *table, "setting=k_100", "setting.k=4", "setting.dev=4")
    assert done.returncode == 0, done.stderr
    assert "4 of train" in done.stdout and "4 others of train" in done.stdout
    assert not (ptrun.folder / "outputs").exists()
