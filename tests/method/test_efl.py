"""EFL and its read-out under other methods: it learns, keeps its answers, and tunes everything."""

from functools import partial

import pytest
import torch

from ptrun.config.compose import compose_run
from ptrun.method.fine_tuning import FineTuning
from ptrun.method.lora import LoRA
from ptrun.method.prompt_tuning import PromptTuning
from ptrun.method.ptuning_v2 import PTuningV2
from ptrun.runs.plan import plan
from tests.readings import reading
from tests.small_runs import engine, member, sst2
from tests.tiers import tiered

EFL = partial(FineTuning, reading=reading("entailment"))
METHODS = {
    "efl": EFL,
    "lora": partial(LoRA, rank=2, reading=reading("entailment")),
    "prompt_tuning": partial(PromptTuning, length=3, reading=reading("entailment")),
    "ptuning_v2": partial(PTuningV2, length=3, reading=reading("entailment")),
}
CELLS = [("bert", name) for name in METHODS]
CELLS += [(kind, "efl") for kind in ("gpt2", "t5")]


def task(data_dir):
    made = sst2(data_dir)
    made.descriptions = {"positive": "the film was good"}
    return made


def test_the_method_tunes_everything_on_entailment(tmp_path):
    planned = plan(compose_run(["method=efl", "task=pocket_pairs", f"outputs={tmp_path}"]))
    names, node = planned.request.names, planned.request.config["method"]
    assert node["_target_"].endswith(".FineTuning")
    assert (names["method"], names["readout"]) == ("efl", "entailment")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "name"), tiered(CELLS, lambda kind, name: (kind, name) == ("bert", "efl"))
)
def test_it_learns_four_examples_and_answers_in_any_order(tiny, data_dir, kind, name):
    backbone, data, make = tiny(kind), task(data_dir), METHODS[name]
    first = data.load("train")[:4]
    data.load = lambda part: first
    lr = {"efl": 3e-3, "lora": 1e-2}.get(name, 5e-2)
    one = member(make, backbone, data, max_steps=100, lr=lr, eval_every=100)
    fit = engine(backbone)
    fit.place([one.method])
    batch = fit._collate(one.features)
    with torch.no_grad():
        before = float(one.method.loss(backbone.forward(one.method.inputs(batch)), batch))
    fit.fit([one])
    with torch.no_grad():
        after = float(one.method.loss(backbone.forward(one.method.inputs(batch)), batch))
    assert after < 0.75 * before
    whole = engine(backbone, 10_000).predict([one.method], [one.features])[0]
    single = engine(backbone, 1).predict([one.method], [one.features[::-1]])[0]
    assert single[::-1] == whole
