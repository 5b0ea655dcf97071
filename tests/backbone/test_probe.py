"""A family that is read from a traced pass, on many model types: each proof, and each refusal."""

from dataclasses import replace
from itertools import cycle, product

import pytest
import torch

from ptrun.backbone import proof
from ptrun.backbone.injection import KeyedDropout
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.backbone.quantization import QuantizedLinear
from ptrun.errors import UserError
from ptrun.exporting.stock_form import form_of
from ptrun.method.lora import LoRA
from ptrun.method.prompt_tuning import PromptTuning
from ptrun.method.ptuning_v2 import PTuningV2
from tests.backbone import types
from tests.exporting.runs import compared, moved
from tests.small_runs import conll03
from tests.tiers import tiered

KINDS = [kind for group in types.GROUPS.values() for kind in group if "llama" not in kind]
SOME = {"gemma2", "modernbert", "t5gemma", "qwen3_moe"}  # the others are slow tests
FUSED = {"qwen3_moe", "mixtral", "gpt_oss", "olmoe", "granitemoe", "phimoe", "deepseek_v3"}


@pytest.fixture(autouse=True)
def forgets(tmp_path, monkeypatch):
    """Keep no proof of one test for another."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def folder_of(tmp_path_factory):
    made = {}

    def folder(kind):
        if kind not in made:
            made[kind] = types.make(kind, tmp_path_factory.mktemp(kind))
        return made[kind]

    return folder


def read(folder, kind):
    return PretrainedBackbone(name=kind, path=str(folder), dtype="fp32")


@pytest.mark.parametrize("kind", tiered(KINDS, SOME.__contains__))
def test_a_probed_model_passes_its_proof(folder_of, kind):
    backbone = read(folder_of(kind), kind)
    assert backbone.architecture.probed
    backbone.load()
    assert [check.passed for check in proof.prove(backbone)] == [True] * 4
    packed = backbone.architecture.packed is not None
    assert packed == (types.group_of(kind) != "seq2seq")
    if packed:
        given = proof._rows(backbone, (7, 4, 5))
        rows = proof.Positions(*given.mask.nonzero(as_tuple=True))
        given = replace(given, hidden_at=rows)
        own = backbone.forward(given).hidden
        backbone.architecture = replace(backbone.architecture, packed=None)
        padded = backbone.forward(given).hidden
        torch.testing.assert_close(own, padded, rtol=1e-4, atol=1e-5 * float(padded.abs().max()))


@pytest.mark.parametrize(
    ("kind", "told"), tiered(types.REFUSED.items(), lambda kind, _: kind == "umt5")
)
def test_a_model_that_cannot_take_prompts_is_refused_by_name(kind, told):
    with pytest.raises(UserError, match=f"backbone=x: model type '{kind}'.*{told}"):
        PretrainedBackbone(name="x", hub="a/b", config=types.config_of(kind).to_dict())


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"model_type": "nothing"}, "model type 'nothing' is none that transformers"),
        ({"model_type": "git", "vision_config": {"depth": 1}}, "has vision_config"),
    ],
)
def test_a_model_of_another_shape_is_refused_by_name(config, told):
    with pytest.raises(UserError, match=told):
        PretrainedBackbone(name="x", hub="a/b", config=config)


def test_a_model_that_mixes_neighbours_fails_its_proof(tmp_path):
    """MobileBERT reads three tokens at once, so packed rows would read each other."""
    types.MASKED["mobilebert"] = {"embedding_size": 16}
    try:
        folder = types.make("mobilebert", tmp_path / "m")
    finally:
        del types.MASKED["mobilebert"]
    with pytest.raises(UserError, match=r"(?s)the bare backbone computes what .* first in layer 1"):
        read(folder, "mobilebert").load()


def test_a_proof_is_kept_for_the_weights(folder_of, monkeypatch):
    backbone, calls = read(folder_of("phi"), "phi"), []
    prove = proof.prove
    monkeypatch.setattr(proof, "prove", lambda own: calls.append(1) or prove(own))
    backbone.load()
    read(folder_of("phi"), "phi").load()
    assert calls == [1]
    backbone.load(torch.bfloat16)
    assert calls == [1, 1]


def test_positions_that_are_not_moved_fail_the_proof(folder_of, monkeypatch):
    backbone = read(folder_of("gemma"), "gemma")
    backbone.load()
    forward = backbone.forward
    monkeypatch.setattr(backbone, "forward", lambda given: forward(replace(given, shift=None)))
    wrong = [check for check in proof.prove(backbone) if not check.passed]
    assert [check.name for check in wrong] == ["keys and values of a joint pass stand for its text"]
    assert wrong[0].far > 0.01 and wrong[0].where == "layer 1"


@pytest.mark.parametrize(
    "kind",
    tiered(["phi3", "modernbert", "bart", "opt", "distilbert"], {"phi3", "opt"}.__contains__),
)
def test_a_row_drops_by_its_key_alone(folder_of, kind):
    backbone = read(folder_of(kind), kind)
    backbone.load()
    given = proof._rows(backbone, (7, 4, 5))
    decoder = given.decoder
    seen = given.mask if decoder is None else decoder.mask
    keys = torch.tensor([11, 12, 13])
    whole = backbone.forward(
        replace(given, keys=keys, hidden_at=proof.Positions(*seen.nonzero(as_tuple=True)))
    ).hidden
    if decoder is not None:
        decoder = replace(decoder, ids=decoder.ids[1:2], mask=decoder.mask[1:2])
    one = replace(
        given, ids=given.ids[1:2, :4], mask=given.mask[1:2, :4], lengths=[4], decoder=decoder
    )
    cells = one.mask if decoder is None else decoder.mask
    at = proof.Positions(*cells.nonzero(as_tuple=True))
    first = int(seen[0].sum())
    dropped = backbone.forward(replace(one, keys=keys[1:2], hidden_at=at)).hidden
    kept = backbone.forward(replace(one, hidden_at=at)).hidden
    part = whole[first : first + len(at.rows)]
    torch.testing.assert_close(dropped, part, rtol=1e-4, atol=1e-5)
    drops = any(isinstance(m, KeyedDropout) and m.p > 0 for m in backbone.model.modules())
    drops |= backbone.architecture.loose > 0
    assert drops == (backbone.shape.dropout > 0) and torch.equal(dropped, kept) != drops


@pytest.mark.parametrize("kind", ["gemma2", "phi3", "modernbert", "bart", "qwen3_moe"])
def test_linear_maps_are_quantized_or_the_model_refused(folder_of, kind):
    backbone = read(folder_of(kind), kind)
    if kind in FUSED:
        with pytest.raises(UserError, match="experts"):
            backbone.quantize("int8")
        return
    backbone.quantize("int8")
    backbone.load()
    maps = [m for m in backbone.model.modules() if isinstance(m, QuantizedLinear)]
    assert len(maps) >= 2 * backbone.shape.layers


METHODS = {"prompt": PromptTuning, "prefix": PTuningV2, "lora": LoRA}
OPTIONS = {"prompt": {"length": 3}, "prefix": {"length": 3}, "lora": {"rank": 2, "alpha": 4}}


SOME_MORE = ("gpt_neox", "xlm-roberta", "gpt_neox", "xlm-roberta", "modernbert", "bart")
NO_EXPORT = {"bart": "by one linear map|mixes", "modernbert": "by one linear map"}


@pytest.mark.parametrize(
    ("kind", "name"),
    tiered(
        [*product(("gemma2", "phi3"), METHODS), *zip(SOME_MORE, cycle(METHODS))],
        lambda kind, _: kind == "gemma2",
    ),
)
def test_stock_peft_has_the_same_logits(folder_of, data_dir, tmp_path, kind, name):
    backbone = read(folder_of(kind), kind)
    backbone.load()
    task = conll03(data_dir)
    method = moved(lambda *given: METHODS[name](*given, **OPTIONS[name]), backbone, task)
    if why := NO_EXPORT.get(kind) or NO_EXPORT.get((kind, name)):
        with pytest.raises(UserError, match=why):
            form_of(method)
        return
    _, found = compared(method, tmp_path / "adapter", task.load("train"))
    if (kind, name) == ("gemma2", "prefix"):  # PEFT's prefix leaves a window of 4 tokens
        assert found.difference > 1e-2 and not found.equal
    else:
        assert found.difference <= 1e-4
