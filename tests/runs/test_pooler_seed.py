"""The untrained pooler of a run: its seed draws it, and later commands draw the same again."""

import json

import pytest
import torch

from ptrun.backbone.pretrained import pooler
from ptrun.config.compose import compose_run
from ptrun.predicting.answering import ready
from ptrun.runs.launch import launch
from ptrun.runs.plan import plan
from tests.runs.test_tuned_backbone import pairs_and_texts

FROZEN = ["method=ptuning_v2", "method.length=2", "readout.pooler=frozen", "task=sst2"]


@pytest.fixture
def composed(tiny_folder, tmp_path):
    common = [*pairs_and_texts(tmp_path), "train.max_steps=2", "hardware.precision=fp32"]

    def compose(*overrides, kind="roberta"):
        return compose_run([f"backbone.path={tiny_folder(kind)}", *common, *overrides])

    return compose


def of(backbone):
    backbone.load()
    return backbone.model.pooler.weight


@pytest.mark.slow
def test_each_seed_has_its_own_and_prediction_draws_it_again(composed):
    planned = [plan(composed(*FROZEN, f"seed={seed}")) for seed in (4, 5)]
    first, second = (of(own.backbone) for own in planned)
    assert torch.equal(second, pooler(32, {}, 5).weight) and not torch.equal(first, second)
    done = launch(composed(*FROZEN, "seed=5"))
    folder = planned[1].folder
    assert done.manifest["backbone"]["pooler_seed"] == 5
    finished = ready(str(folder), [])
    (method,) = finished.load().values()
    assert torch.equal(method.backbone.model.pooler.weight, second)
    examples = planned[1].task.load("test")
    answers = finished.engine.predict([method], [method.encode(examples)])[0]
    lines = (folder / "predictions.jsonl").read_text().splitlines()
    assert [answer.value for answer in answers] == [json.loads(o)["prediction"] for o in lines]


@pytest.mark.slow
def test_a_stored_pooler_has_no_seed(composed):
    done = launch(composed(*FROZEN, "seed=5", kind="bert"))
    assert done.manifest["backbone"]["pooler_seed"] is None


def test_a_head_from_another_run_reads_the_pooler_of_that_run(composed):
    """EFL starts from the head of a run that was tuned behind its own untrained pooler."""
    tuned = ["method=fine_tuning", "task=cmnli", "readout.pooler=frozen", "seed=3"]
    first = launch(composed(*tuned))
    second = composed("method=efl", "task=sst2", f"start=run:{first.run_id}", "seed=8")
    planned = plan(second)
    assert torch.equal(of(planned.backbone), pooler(32, {}, 3).weight)
    done = launch(second)
    assert done.manifest["backbone"]["pooler_seed"] == 3
    (method,) = ready(str(planned.folder), []).load().values()
    assert torch.equal(method.backbone.model.pooler.weight, pooler(32, {}, 3).weight)
