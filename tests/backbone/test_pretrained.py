"""Loading: from a cache, from a folder, what is refused, and sizes known without weights."""

import json
import shutil

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from ptrun.backbone import files
from ptrun.backbone.base import BackboneInput, DecoderInput
from ptrun.config import build
from ptrun.config.compose import compose_run
from ptrun.config.paths import options
from ptrun.errors import UserError
from tests.backbone.inputs import every, outputs_of
from tests.families import PaperBackbone
from tests.tiers import package, tiered

PUBLISHED = {
    "bert_base_cased": 108_310_272,
    "bert_large_cased": 333_579_264,
    "bert_large_uncased": 335_141_888,
    "roberta_large": 355_359_744,
    "electra_base": 109_483_009,
    "electra_large": 335_142_913,
    "t5_v1_1_small": 76_961_152,
    "t5_v1_1_base": 247_577_856,
    "t5_v1_1_large": 783_150_080,
    "t5_v1_1_xl": 2_849_757_184,
    "t5_v1_1_xxl": 11_135_332_352,
    "mt5_xxl": 12_921_057_280,
    "cpm2": 11_087_097_856,
}
PRESETS = [name for name in options("backbone") if not name.startswith("pocket_") and name != "hub"]


def preset(name):
    node = compose_run([f"backbone={name}"]).config["backbone"]
    return node, build.build("backbone", node)


@pytest.mark.parametrize("name", tiered(PRESETS, lambda name: "base" in name))
@pytest.mark.slow
def test_sizes_are_counted_without_weights_and_stated(name):
    node, backbone = preset(name)
    assert backbone.size() == node["parameters"] == PUBLISHED.get(name, node["parameters"])
    assert all(p.is_meta for p in backbone.model.parameters())
    assert node["dtype"] == "bf16" and "revision" in node
    assert node.get("tokenizer") or name not in PUBLISHED  # the files of others say it


def test_every_published_size_has_a_preset():
    assert set(PUBLISHED) <= set(PRESETS)


def test_a_model_on_no_hub_says_how_to_get_it():
    _, backbone = preset("cpm2")
    with pytest.raises(UserError, match="ptrun import cpm2 SHARDS"):
        backbone.load()


def test_a_hub_model_is_loaded_from_the_cache_with_its_commit(tmp_path, tiny_folder, monkeypatch):
    from huggingface_hub import constants

    commit = "0123456789abcdef0123456789abcdef01234567"
    cached = tmp_path / "models--someone--tiny"
    shutil.copytree(tiny_folder("bert"), cached / "snapshots" / commit)
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text(commit)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    config = json.loads((tiny_folder("bert") / "config.json").read_text())
    hub = {"name": "tiny", "hub": "someone/tiny", "revision": "main", "config": config}
    backbone = PaperBackbone(**hub)
    assert backbone.commit is None and backbone.weights == "someone/tiny@main"
    backbone.load()
    assert backbone.commit == commit and backbone.has_pooler
    assert backbone.weights == "someone/tiny@main"  # what is bound to it is found again
    wrong = PaperBackbone(**hub, parameters=5)
    with pytest.raises(UserError, match="not the published 5"):
        wrong.load()


def test_what_cannot_be_loaded_is_refused_by_name(tmp_path, tiny_folder):
    with pytest.raises(UserError, match="no model there"):
        PaperBackbone(name="x", path=str(tmp_path))
    config = json.loads((tiny_folder("bert") / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(UserError, match=r"ptrun import hf .* --out DIR"):
        PaperBackbone(name="x", path=str(tmp_path))
    weights = (tiny_folder("bert") / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(weights)
    (tmp_path / "config.json").write_text(json.dumps(config | {"auto_map": {}}))
    with pytest.raises(UserError, match="remote code"):
        PaperBackbone(name="x", path=str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "umt5"}))
    with pytest.raises(UserError, match="'umt5' passes position_bias to its attention"):
        PaperBackbone(name="x", path=str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps(config | {"intermediate_size": 8}))
    with pytest.raises(UserError, match=r"intermediate.dense.bias is .*, and config.json asks"):
        PaperBackbone(name="x", path=str(tmp_path)).read_weights()
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes(b"not tensors at all")
    with pytest.raises(UserError, match="not a safetensors file"):
        PaperBackbone(name="x", path=str(tmp_path))


def test_a_folder_without_a_tokenizer_is_refused(tmp_path, tiny_folder):
    shutil.copytree(tiny_folder("bert"), tmp_path / "bare")
    (tmp_path / "bare" / "tokenizer.json").unlink()
    backbone = PaperBackbone(name="x", path=str(tmp_path / "bare"))
    with pytest.raises(UserError, match=r"no tokenizer there; expected one of tokenizer.json"):
        backbone.tokenizer()


def rewritten(folder, into, rename, **config):
    """Copy a model folder with other tensor names (None drops one) and configuration values."""
    shutil.copytree(folder, into)
    tensors = load_file(into / "model.safetensors")
    named = {rename(name): tensor for name, tensor in tensors.items()}
    named.pop(None, None)
    save_file(named, into / "model.safetensors", metadata={"format": "pt"})
    content = json.loads((into / "config.json").read_text()) | config
    dropped = {key: value for key, value in content.items() if value is not None}
    (into / "config.json").write_text(json.dumps(dropped))
    return PaperBackbone(name="x", path=str(into))


@pytest.mark.parametrize("kind", ["deberta", "deberta-v2"])
def test_debertas_published_head_is_found_though_its_configuration_hides_it(
    tiny_folder, tmp_path, kind
):
    library = getattr(
        transformers, PaperBackbone(name="x", path=str(tiny_folder(kind))).architecture.library
    )
    config = transformers.AutoConfig.from_pretrained(tiny_folder(kind))
    config.legacy = False
    torch.manual_seed(2)
    model = library(config).eval()
    torch.nn.init.normal_(model.lm_predictions.lm_head.bias)
    model.save_pretrained(tmp_path / "new")
    shutil.copy(tiny_folder(kind) / "tokenizer.json", tmp_path / "new")
    backbone = rewritten(
        tmp_path / "new", tmp_path / "hub", lambda n: n, legacy=None, pos_att_type="c2p|p2c"
    )
    backbone.load()
    ids = torch.tensor([[5, 17, 30, 8]])
    mask = torch.ones_like(ids, dtype=torch.bool)
    given = BackboneInput(mask=mask, ids=ids, logits_at=every(mask))
    assert backbone.has_head
    torch.testing.assert_close(
        backbone.forward(given).logits, model(ids).logits[0], atol=1e-5, rtol=0
    )


def test_old_names_of_norms_and_a_body_alone_are_loaded(tiny_folder, tmp_path):
    def old(name):
        return name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        )

    same = PaperBackbone(name="x", path=str(tiny_folder("bert")))
    aged = rewritten(tiny_folder("bert"), tmp_path / "old", old)
    body = rewritten(
        tiny_folder("bert"), tmp_path / "body", lambda n: None if n.startswith("cls.") else n
    )
    for backbone in (same, aged, body):
        backbone.load()
    for name, parameter in same.model.bert.named_parameters():
        assert torch.equal(parameter, aged.model.bert.get_parameter(name))
        assert torch.equal(parameter, body.model.bert.get_parameter(name))
    assert aged.has_head and not body.has_head


def test_a_pooler_that_tuning_left_is_not_taken_for_a_trained_one(tiny_folder, tmp_path):
    model = transformers.DebertaV2ForSequenceClassification.from_pretrained(
        tiny_folder("deberta-v2")
    )
    model.save_pretrained(tmp_path / "tuned")
    backbone = PaperBackbone(name="x", path=str(tmp_path / "tuned"))
    assert not backbone.has_pooler


REAL = {"mini_bert": "masked", "mini_electra": "masked", "mini_t5": "seq2seq"}
REAL |= dict.fromkeys(
    ("mini_gpt2", "tinystories-llama-260k", "tinystories-llama-940k-char"), "causal"
)


@pytest.mark.shared
@pytest.mark.parametrize("name", REAL)
def test_a_really_pretrained_model_says_what_the_library_says(shared, name):
    folder = shared / "models" / name
    backbone = PaperBackbone(name="x", path=str(folder))
    size = backbone.size()
    backbone.load()
    assert backbone.family == REAL[name] and backbone.name == name and backbone.size() == size
    tokenizer = backbone.tokenizer()
    ids = torch.tensor([tokenizer("The plot was good.")["input_ids"]])
    mask = torch.ones_like(ids, dtype=torch.bool)
    decoder = DecoderInput(mask=mask, ids=ids) if backbone.family == "seq2seq" else None
    places = {"logits_at": every(mask), "hidden_at": every(mask)}
    given = BackboneInput(mask=mask, ids=ids, decoder=decoder, **places)
    model = getattr(transformers, backbone.architecture.library)
    expected, _ = outputs_of(model.from_pretrained(folder, dtype=torch.float32).eval(), given)
    ours = backbone.forward(given).logits.view_as(expected)
    torch.testing.assert_close(ours, expected, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("kind", ["t5", "roberta"])
def test_weights_read_straight_onto_a_device_are_the_same_and_stay_there(
    tiny_folder, monkeypatch, kind
):
    package("accelerate")  # transformers maps devices with it alone
    through, straight = (PaperBackbone(name="tiny", path=str(tiny_folder(kind))) for _ in range(2))
    through.load(torch.bfloat16)
    assert files.device_map("cpu") is None and files.device_map("cuda") == {"": "cuda"}
    monkeypatch.setattr(files, "device_map", lambda device: {"": "cpu"})
    straight.load(torch.bfloat16, "cuda")
    for (name, one), other in zip(
        through.model.state_dict().items(), straight.model.state_dict().values(), strict=True
    ):
        assert one.dtype is torch.bfloat16 and torch.equal(one, other), name
    assert not any(hasattr(module, "_hf_hook") for module in straight.model.modules())
    places = [p.data_ptr() for p in straight.model.parameters()]
    straight.model.to("cpu", torch.bfloat16)  # as an engine does: no copy
    assert places == [p.data_ptr() for p in straight.model.parameters()]


def test_without_accelerate_weights_go_through_the_host(monkeypatch):
    monkeypatch.setattr(files, "find_spec", lambda name: None)
    assert files.device_map("cuda") is None
