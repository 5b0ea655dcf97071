"""`method=ppt`: a prompt learned on pairs of a corpus is where a run on another task begins."""

import pytest
from safetensors.torch import load_file

from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.plan import plan
from ptrun.run import run
from tests.task.ppt.corpora import document, write


@pytest.fixture
def composed(tmp_path):
    corpus = write(tmp_path / "corpus", [document(number) for number in range(60)])
    told = [f"outputs={tmp_path / 'outputs'}", "backbone=pocket_t5", "method=ppt"]
    told += ["method.length=5", "train.batch_size=4", "train.max_steps=2", "train.eval_every=2"]
    few = "task.source.examples={train: 16, validation: 4, test: 4}"
    made = [f"task.source.corpus={corpus}", few, "task.source.shares=[80,10,10]"]

    def compose(task, *overrides):
        own = made if task.startswith("ppt_") else ["setting=few_shot", "setting.k=4"]
        return compose_run([*told, f"task={task}", *own, *overrides])

    return compose


def test_a_prompt_of_pairs_starts_a_task(composed):
    """Nothing is learned with a rate of almost nothing, so the prompt is the one begun with."""
    first = composed("ppt_nsp", "method.pattern=pocket", "start=identical", "train.lr=0.1")
    learned = run(first)
    assert learned.status == "finished" and learned.learned_parameters["head"] == 0
    before = load_file(plan(first).folder / "prompt.safetensors")["prompt.table"]
    assert (before - before[0]).abs().max() > 1e-2, "no longer one vector in every row"
    still = ["train.lr=1e-12", "train.weight_decay=0"]
    second = composed("pocket_pairs", f"start=run:{learned.run_id}", *still)
    assert run(second).manifest["start"] == f"run:{learned.run_id}"
    after = load_file(plan(second).folder / "prompt.safetensors")["prompt.table"]
    assert (after - before).abs().max() < 1e-5


@pytest.mark.parametrize("task", ["ppt_nss", "ppt_unified"])
def test_a_prompt_is_learned_on_options(composed, task):
    done = run(composed(task, "method.pattern=pocket", "start=identical"))
    assert done.status == "finished" and 0 <= done.metrics["test"]["accuracy"] <= 100


def test_it_does_not_begin_at_random_in_silence(composed):
    with pytest.raises(UserError, match=r"give a run id or a run's folder .* start=run:"):
        plan(composed("pocket_pairs"))
