"""Runs that pick the same options share a composed root; each is what Hydra composes alone."""

import random

import pytest

from ptrun.config import compose
from ptrun.config.compose import compose_run
from ptrun.errors import UserError

LINES = ["seed=3", "seed=4 train.lr=1e-3", "method.length=4 method.dropout=0.1"]
LINES += ["method.length=8 method.dropout=null", "method=prompt_tuning method.length=4"]
LINES += ["method=prompt_tuning method.length=5 readout.pooler=none"]
LINES += ["method=lora method.targets=[query] seed=2"]
LINES += ["method=lora method.targets=[key,value] seed=2", "method=lora seed=2"]
LINES += ["readout=head readout.dropout=0.2", "task=pocket_sentiment task.values.label={a:b}"]
LINES += ["task=pocket_sentiment", "backbone.path=/nowhere/a", "backbone.path=/nowhere/b"]
LINES += ["setting=few_shot_32 data_seed=3 name=own/folder", "+expected.mean=80.5"]
LINES += ["expected.mean=81", "backbone.lr.prompt=0.5 seed=2", "backbone.lr.prompt=0.25 seed=2"]
LINES += ["train.lr=${train.eps} train.eps=1e-3", "train.lr=${train.eps} train.eps=2e-3"]
LINES += ["tracking=[wandb]", "start=run:first", "trial={20: 50.0}"]
LINES += ["train.schedule=constant train.weight_decay=0.1", "seed=8 seed=9"]
LINES += ["method.config.r=3 method.config=null", "++method.new=1", "method.length='8'"]
LINES += ["~method.length", "name=é", "seed=abc", "train.lr=x", "seed=1,2", "name=../out"]
LINES += ["seed=-1"]


def outcome(overrides, function):
    try:
        one = function(overrides)
        return one.config, one.names, one.typed
    except UserError as error:
        return str(error)


def alone(overrides):
    """Return what Hydra composes with every override given to it."""
    compose._picked.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compose, "_plain_value", lambda override: None)
        made = compose_run(overrides)
    return made


@pytest.fixture(scope="module")
def own():
    """Return what each line is alone; no test changes it."""
    return {line: outcome(line.split(), alone) for line in LINES}


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_run_is_what_hydra_composes_alone(own, seed):
    compose._picked.cache_clear()
    lines = LINES * 2
    random.Random(seed).shuffle(lines)
    for line in lines:
        assert outcome(line.split(), compose_run) == own[line], line


def test_what_is_given_or_changed_is_gone_in_the_next_run():
    line = ["task=pocket_sentiment", "seed=3"]
    before = compose_run(line).config
    changed = compose_run(line, given={"method": {"_target_": "x"}}, changed={"seed": 9})
    assert (changed.seed, changed.config["method"]) == (9, {"_target_": "x"})
    assert compose_run(line).config == before


def test_an_edited_file_of_the_user_is_read_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "ptrun_conf" / "setting" / "mine.yaml"
    file.parent.mkdir(parents=True)
    text = "_target_: ptrun.task.setting.SampleSize\nn: {}\n"
    for n in (10, 11):
        file.write_text(text.format(n) + "#" * n)
        assert compose_run(["setting=mine", f"seed={n}"]).config["setting"]["n"] == n


def test_options_are_composed_once(monkeypatch):
    compose._picked.cache_clear()
    for seed in range(20):
        compose_run(
            ["method=lora", "task=pocket_sentiment", f"seed={seed}", f"train.lr={seed + 1}"]
        )
    assert compose._picked.cache_info().misses == 1
