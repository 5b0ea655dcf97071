"""Any PEFT tuner as a method: PEFT's own values and outputs, a frozen backbone, clear refusals."""

from dataclasses import replace

import pytest
import torch
from peft import get_peft_model
from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING, PEFT_TYPE_TO_TUNER_MAPPING

from ptrun.backbone.base import checksum
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.method.fine_tuning import FineTuning
from ptrun.method.peft import _REFUSED, PeftMethod, peft_config
from ptrun.runs.launch import launch
from tests.backbone.inputs import text
from tests.small_runs import conll03, engine, member, sst2
from tests.tiers import tiered

SIZES = {
    "C3A": {"block_size": 16},
    "LN_TUNING": {"target_modules": ["LayerNorm"]},
    "MISS": {"r": 8},
    "ROAD": {"group_size": 16},
    "VBLORA": {"vector_length": 16, "num_vectors": 8},
    "WAVEFT": {"n_frequency": 20},
    "IA3": {"feedforward_modules": []},
}
EVERY = sorted(k.value for k in PEFT_TYPE_TO_CONFIG_MAPPING if k.value not in _REFUSED)
DORA = {"peft_type": "LORA", "use_dora": True, "r": 4}
VERA = {"peft_type": "VERA", "r": 16}


def placed(backbone, data_dir, config, **keys):
    torch.manual_seed(1)
    method = PeftMethod(backbone, sst2(data_dir), config=config, **keys)
    engine(backbone).place([method])
    return method


def read(backbone):
    with torch.no_grad():
        return backbone.forward(text(backbone)).hidden


@pytest.mark.parametrize("kind", tiered(EVERY, lambda kind: kind in ("IA3", "LORA", "VERA", "OFT")))
def test_every_tuner_trains_and_leaves_the_backbone_as_it_was(tiny_folder, data_dir, kind):
    backbone = PretrainedBackbone(name="tiny", path=str(tiny_folder("bert")), dtype="fp32")
    config = {"peft_type": kind, "target_modules": ["query", "value"], **SIZES.get(kind, {})}
    torch.manual_seed(1)
    method = PeftMethod(backbone, sst2(data_dir), config=config)  # no weights yet
    backbone.load()
    fit, bare = engine(backbone), checksum(backbone.model)
    one = member(lambda *_: method, backbone, sst2(data_dir), max_steps=3)
    fit.place([method])
    size, placed_sum = backbone.size(), checksum(backbone.model)
    before = {name: p.detach().clone() for name, p in method.learned().items()}
    fit.fit([one])
    assert checksum(backbone.model) == placed_sum and backbone.size() == size
    moved = [name for name, p in method.learned().items() if not torch.equal(p, before[name])]
    assert set(moved) == set(before)
    trained, states = {n: p.detach().clone() for n, p in method.learned().items()}, read(backbone)
    fit.place([method])  # again: the learned values stay
    assert all(torch.equal(p, trained[n]) for n, p in method.learned().items())
    assert torch.equal(read(backbone), states)
    fit.place([FineTuning(backbone, sst2(data_dir))])
    assert checksum(backbone.model) == bare


@pytest.mark.parametrize("kind", ["bert", "gpt2", "t5", "llama", "electra"])
@pytest.mark.parametrize("config", [{"peft_type": "IA3"}, DORA, VERA], ids=["ia3", "dora", "vera"])
def test_it_starts_with_pefts_values_and_outputs(tiny, tiny_folder, data_dir, kind, config):
    backbone = tiny(kind)
    method = placed(backbone, data_dir, config)
    stock = backbone.architecture.model_class.from_pretrained(
        tiny_folder(kind), attn_implementation="eager"
    )
    made = {key: value for key, value in method.options.items() if key != "peft_type"}
    theirs = get_peft_model(stock, peft_config({"peft_type": config["peft_type"], **made})).eval()
    own = {n: p for n, p in theirs.named_parameters() if p.requires_grad}
    with torch.no_grad():
        for key, name in method.names.items():
            parameter = own.pop(f"base_model.model.{name}")
            assert parameter.shape == method.prompt[key].shape
            if "lora_A" not in name:  # drawn; the others start from constants and weights
                torch.testing.assert_close(parameter.data, method.prompt[key].data)
            method.prompt[key].add_(torch.randn_like(parameter) * 0.1)
            parameter.copy_(method.prompt[key])
    assert not own
    given = text(backbone)
    inputs = {"input_ids": given.ids, "attention_mask": given.mask.long()}
    if given.decoder is not None:
        inputs |= {"decoder_input_ids": given.decoder.ids}
        inputs |= {"decoder_attention_mask": given.decoder.mask.long()}
    out = theirs(**inputs, output_hidden_states=True)
    states = out.decoder_hidden_states if given.decoder is not None else out.hidden_states
    at = given.hidden_at
    expected = states[-1][at.rows, at.columns]
    torch.testing.assert_close(read(backbone), expected, atol=2e-5, rtol=1e-5)


def test_the_seed_decides_the_drawn_values(tiny, data_dir):
    values = [
        [p.detach().clone() for p in placed(tiny(), data_dir, DORA).prompt.values()]
        for _ in range(2)
    ]
    assert all(torch.equal(a, b) for a, b in zip(*values, strict=True))
    torch.manual_seed(2)
    other = PeftMethod(tiny(), sst2(data_dir), config=DORA)
    engine(other.backbone).place([other])
    assert any(not torch.equal(a, b) for a, b in zip(values[0], other.prompt.values(), strict=True))


@pytest.mark.parametrize("config", [{"peft_type": "IA3"}, DORA, VERA], ids=["ia3", "dora", "vera"])
def test_a_bf16_backbone_keeps_the_learned_tensors_fp32(tiny, data_dir, config):
    backbone = tiny()
    torch.manual_seed(1)
    method, fit = PeftMethod(backbone, sst2(data_dir), config=config), engine(backbone)
    fit.precision = "bf16"
    fit.place([method])
    states = read(backbone)
    assert states.dtype is torch.bfloat16 and bool(states.isfinite().all())
    assert {p.dtype for p in method.learned().values()} == {torch.float32}


def test_dropout_is_keyed_by_rows(tiny, data_dir):
    backbone = tiny()
    method = placed(backbone, data_dir, {**DORA, "lora_dropout": 0.5})
    with torch.no_grad():
        for tensor in method.prompt.values():
            tensor.normal_()

    def states(keys):
        with torch.no_grad():
            return backbone.forward(replace(text(backbone), keys=torch.tensor(keys))).hidden

    rows = text(backbone).hidden_at.rows
    first, other = states([0, 1, 2]), states([0, 1, 9])
    assert torch.equal(first, states([0, 1, 2]))
    assert torch.equal(first[rows < 2], other[rows < 2])
    assert not torch.equal(first[rows == 2], other[rows == 2])


def test_a_tagger_leaves_the_decoder_alone(tiny, data_dir):
    method = PeftMethod(tiny("t5"), conll03(data_dir), config={"peft_type": "IA3"})
    assert method.changed and not [name for name in method.changed if name.startswith("decoder")]


def test_poolers_and_output_heads_are_not_changed(tiny, data_dir):
    config = {"peft_type": "LOHA", "r": 2, "target_modules": ["dense"]}
    method = PeftMethod(tiny(), sst2(data_dir), config=config)
    assert all(name.startswith("bert.encoder.layer.") for name in method.changed)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "peft_type=missing: unknown"),
        ({"peft_type": "IA4"}, "did you mean 'IA3'"),
        ({"peft_type": "PREFIX_TUNING"}, "type method=prefix_peft instead"),
        ({"peft_type": "ADALORA"}, "changes its ranks while it trains"),
        ({"peft_type": "IA3", "target": ["key"]}, "method.config.target: unknown"),
        ({"peft_type": "IA3", "modules_to_save": ["x"]}, "method.config.modules_to_save: unknown"),
        ({"peft_type": "LORA", "r": 0}, "PEFT rejects it"),
        (
            {"peft_type": "LORA", "target_modules": ["q_proj"]},
            "no such target_modules; tiny_bert.* has query, key, value",
        ),
        ({"peft_type": "LORA", "bias": "all"}, "would change the backbone's own"),
        ({"peft_type": "LORA", "init_lora_weights": "pissa"}, "PEFT|would change"),
        (
            {"peft_type": "OFT", "module_dropout": 0.5, "target_modules": ["query"]},
            "drawn for a whole batch",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_name(tiny, data_dir, config, message):
    with pytest.raises(UserError, match=message):
        placed(tiny(), data_dir, config)


def test_albert_is_refused(tiny, data_dir):
    with pytest.raises(UserError, match="share their weights"):
        placed(tiny("albert"), data_dir, {"peft_type": "IA3"})


def test_without_peft_it_says_what_to_install(tiny, data_dir, monkeypatch):
    monkeypatch.setattr("ptrun.method.peft.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"method=peft needs .*pip install 'ptrun\[peft\]'"):
        PeftMethod(tiny(), sst2(data_dir), config={"peft_type": "IA3"})


def test_two_members_cannot_share_a_backbone(tiny, data_dir):
    backbone, task = tiny(), sst2(data_dir)
    two = [PeftMethod(backbone, task, config={"peft_type": "IA3"}) for _ in range(2)]
    with pytest.raises(UserError, match="changes the backbone, so its runs cannot share one"):
        engine(backbone).place(two)


def test_every_type_of_peft_is_supported_or_has_a_reason():
    known = {kind.value for kind in PEFT_TYPE_TO_TUNER_MAPPING}
    assert {*_REFUSED} <= known | {"MIXED"}


@pytest.mark.parametrize("option", ["peft", "ia3", "dora", "vera", "prefix_peft"])
@pytest.mark.slow
def test_a_preset_runs_and_its_backbone_is_verified(tmp_path, option):
    common = ["task=pocket_sentiment", "setting=few_shot_32", "train.max_steps=2"]
    runs = [
        launch(compose_run([f"method={option}", *common, f"outputs={tmp_path / name}"]))
        for name in "ab"
    ]
    assert all(run.manifest["backbone"]["frozen_verified"] for run in runs)
    assert runs[0].metrics == runs[1].metrics and runs[0].learned_parameters["prompt"] > 0
    assert runs[0].manifest["prompt"] == runs[1].manifest["prompt"]
