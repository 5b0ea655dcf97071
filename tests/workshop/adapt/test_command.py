"""`workshop.adapt` end to end: a folder that loads, exact resume, mistakes that are explained."""

import json
from itertools import islice

import pytest
import torch
from safetensors.torch import load_file

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from ptrun.pocket.corpus import documents
from workshop.adapt import Trainer, main


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    file = tmp_path_factory.mktemp("corpus") / "train.jsonl"
    rows = [json.dumps({"doc": "\n".join(own)}) for own in islice(documents(), 600)]
    file.write_text("\n".join(rows))
    return file.parent


@pytest.fixture
def adapt(corpus, tmp_path):
    def command(name, *more):
        out = tmp_path / name
        keys = ["steps=3", "batch=4", "held_out=4", "save_every=0", "log_every=2", "length=64"]
        main([f"corpus={corpus}", f"out={out}", *keys, *more])
        return out

    return command


@pytest.mark.slow
def test_the_folder_is_a_backbone_like_any_other(adapt, capsys):
    out = adapt("made")
    first, made = PretrainedBackbone(name="pocket_t5", shipped="pocket_t5"), read_back(out)
    assert made.tokenizer_digest() == first.tokenizer_digest() and made.weights != first.weights
    result = json.loads((out / "result.json").read_text())
    assert result["plan"]["weights"] == first.weights and result["held_out"] == 4
    assert result["after"]["loss"] < result["before"]["loss"]
    assert json.loads(capsys.readouterr().out)["after"] == result["after"]
    assert str(out.parent) not in (out / "result.json").read_text()
    assert [file.name for file in out.parent.iterdir() if "state" in file.name] == []
    assert not torch.equal(made.model.lm_head.weight, made.model.shared.weight)


def read_back(out):
    backbone = PretrainedBackbone(name="made", path=str(out))
    backbone.load()
    return backbone


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["adafactor", "adamw"])
def test_a_killed_adaptation_goes_on_to_the_same_bits(adapt, monkeypatch, optimizer):
    given = [f"optimizer={optimizer}", "sentinel=true"]
    whole = adapt("whole", *given)
    with monkeypatch.context() as patch:
        update = Trainer._update
        patch.setattr(Trainer, "_update", lambda self, t: dying(self) or update(self, t))
        with pytest.raises(KeyboardInterrupt):
            adapt("cut", *given)
    with pytest.raises(UserError, match=r"rate was 0.001, is 0.1"):
        adapt("cut", *given, "rate=0.1")
    cut = adapt("cut", *given)
    one, two = (load_file(out / "model.safetensors") for out in (whole, cut))
    assert one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)
    told = [json.loads((out / "result.json").read_text()) for out in (whole, cut)]
    for key in ("plan", "before", "after"):
        assert told[0][key] == told[1][key]


def dying(trainer):
    if trainer.step == 2:
        raise KeyboardInterrupt
