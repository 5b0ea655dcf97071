"""Whole runs that begin somewhere: the recipe puts prompts in place, identity is by content."""

import shutil

import pytest
import torch
from safetensors.torch import load_file

from ptrun.config.compose import compose_run
from ptrun.runs.examples import split_of
from ptrun.runs.launch import launch
from ptrun.runs.plan import plan

STILL = ["train.lr=1e-12", "train.max_steps=1"]


@pytest.fixture
def soft_run(small):
    return lambda *overrides: small("method=prompt_tuning", "method.length=3", *overrides)


def prompt_of(composed):
    return load_file(plan(composed).folder / "prompt.safetensors")


@pytest.mark.slow
def test_a_run_begins_as_another_whichever_way_that_is_named(soft_run, tmp_path):
    first = launch(soft_run())
    followed = soft_run(f"start=run:{first.run_id}", *STILL)
    second = launch(followed)
    ours, theirs = prompt_of(followed), prompt_of(soft_run())
    torch.testing.assert_close(ours["prompt.table"], theirs["prompt.table"], atol=1e-9, rtol=0)
    head = "readout.linear.weight"
    assert not torch.allclose(ours[head], theirs[head], atol=1e-3)
    assert second.manifest["start"] == f"run:{first.run_id}"
    assert second.manifest["start_takes"] == "prompt"
    copied = shutil.copytree(plan(soft_run()).folder, tmp_path / "elsewhere")
    assert plan(soft_run(f"start=run:{copied}", *STILL)).run_id == second.run_id
    assert plan(soft_run(*STILL)).run_id != second.run_id
    other = launch(soft_run("seed=2"))
    assert plan(soft_run(f"start=run:{other.run_id}", *STILL)).run_id != second.run_id


@pytest.mark.slow
def test_the_prompt_of_one_task_starts_that_of_another(tmp_path):
    """SPoT: other labels and another read-out; a residual prompt is the vectors that it leaves."""
    few = ["setting=few_shot_32", "method.length=3", f"outputs={tmp_path}", "train.batch_size=8"]
    residual = "method=residual_prompt", "method.hidden=8", "train.max_steps=3"
    for number, method in enumerate((["method=prompt_tuning", "train.max_steps=3"], residual)):
        first = compose_run([*few, *method, "task=pocket_sentiment", f"name=first{number}"])
        start = f"start=run:{launch(first).run_id}"
        line = ["method=prompt_tuning", "readout=verbalizer", "task=pocket_topics", start, *STILL]
        second = compose_run([*few, *line, f"name=first{number}"])
        assert launch(second).status == "finished"
        ours, theirs = prompt_of(second), prompt_of(first)
        torch.testing.assert_close(ours["prompt.table"], theirs["prompt.table"], atol=1e-9, rtol=0)
        assert [*ours] == ["prompt.table"] and len(theirs["readout.linear.bias"]) == 2


@pytest.mark.slow
@pytest.mark.parametrize("change", ["protocol=paper", "data_seed=2"])
def test_a_start_that_was_split_in_another_way_is_told(soft_run, caplog, change):
    first = launch(soft_run(change, *STILL))
    split_of(plan(soft_run(f"start=run:{first.run_id}", change)))
    told = f"start=run:{first.run_id} has another {change.partition('=')[0]}"
    assert told not in caplog.text
    split_of(plan(soft_run(f"start=run:{first.run_id}")))
    assert told in caplog.text


@pytest.mark.slow
def test_a_run_begins_as_words_and_resumes_from_what_it_learned(soft_run):
    composed = soft_run("start=text:good film plot", *STILL)
    launch(composed)
    planned = plan(composed)
    planned.backbone.load()
    ids = planned.backbone.tokenizer().convert_tokens_to_ids(["good", "film", "plot"])
    begun = planned.backbone.embed(torch.tensor(ids))
    assert torch.allclose(prompt_of(composed)["prompt.table"], begun, atol=1e-9, rtol=0)
    learned = soft_run("start=text:good film plot")
    launch(learned)
    whole = prompt_of(learned)
    (plan(learned).folder / "result.json").unlink()  # as if it had stopped just before the end
    launch(learned)
    assert torch.equal(prompt_of(learned)["prompt.table"], whole["prompt.table"])
    assert not torch.allclose(whole["prompt.table"], begun, atol=1e-3)
