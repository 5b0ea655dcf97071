"""The text part of a model that also reads images: equal to the whole model on text alone."""

import json
import logging
import shutil
from dataclasses import replace

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from ptrun.backbone import proof, weights
from ptrun.backbone.base import Positions
from ptrun.backbone.choosing import Decoding
from ptrun.backbone.files import fingerprint, read_config
from ptrun.backbone.generation import generate
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from ptrun.exporting import stock_form as stock
from ptrun.exporting.export import parity
from ptrun.importing.hf import import_hf
from ptrun.method.fine_tuning import FineTuning
from ptrun.method.lora import LoRA
from ptrun.method.prompt_tuning import PromptTuning
from ptrun.method.ptuning_v2 import PTuningV2
from ptrun.planning.doctor import backbone_checks
from ptrun.readout.chat import template_of
from tests.backbone import types
from tests.exporting.runs import compared, moved, opinions
from tests.readings import reading, reads
from tests.small_runs import scores, sst2, train_batch
from tests.tiers import package, tiered

SOME = ("gemma3", "mistral3", "qwen2_5_vl", "qwen3_vl")
NEW, OLD = (
    ("model.language_model.", "lm_head."),
    ("language_model.model.", "language_model.lm_head."),
)
METHODS = [
    (PromptTuning, {"length": 3}),
    (PTuningV2, {"length": 3}),
    (LoRA, {"rank": 2, "alpha": 4}),
]


@pytest.fixture(scope="module")
def whole_of(tmp_path_factory):
    """Return the whole model of a kind, and its folder."""
    made = {}

    def make(kind):
        if kind not in made:
            folder = tmp_path_factory.mktemp(kind)
            made[kind] = types.make_multimodal(kind, folder), folder
        return made[kind]

    return make


@pytest.fixture(autouse=True)
def forgets(tmp_path, monkeypatch):
    """Keep no proof of one test for another."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def copied(folder, out, change):
    """Copy a folder with the tensors that `change` makes of its own."""
    shutil.copytree(folder, out)
    save_file(change(load_file(folder / "model.safetensors")), out / "model.safetensors")
    return out


def renamed(body, head):
    """Return what gives the text part and its head other names."""

    def change(tensors):
        (start,) = {n.removesuffix("embed_tokens.weight") for n in tensors if "embed_tok" in n}
        parts = [f"{start}{part}" for part in ("embed_tokens.", "layers.", "norm.")]
        new = {n: body + n.removeprefix(start) for n in tensors if n.startswith(tuple(parts))}
        new |= {n: f"{head}weight" for n in tensors if n.endswith("lm_head.weight")}
        return {new.get(name, name): tensor for name, tensor in tensors.items()}

    return change


def loaded(folder, quantization="none"):
    backbone = PretrainedBackbone(name="whole", path=str(folder), dtype="fp32")
    backbone.quantize(quantization)
    backbone.load()
    return backbone


def logits(backbone, **more):
    inputs = replace(proof._rows(backbone, (7, 4)), **more)
    at = Positions(*inputs.mask.nonzero(as_tuple=True))
    with torch.no_grad():
        return inputs, backbone.forward(replace(inputs, logits_at=at)).logits


@pytest.mark.parametrize("kind", tiered(types.MULTIMODAL, SOME.__contains__))
@pytest.mark.parametrize("names", [None, NEW, OLD])
def test_the_text_part_computes_what_the_whole_model_does(whole_of, tmp_path, caplog, kind, names):
    caplog.set_level(logging.INFO, "ptrun")
    model, folder = whole_of(kind)
    folder = copied(folder, tmp_path / "copy", renamed(*names)) if names else folder
    backbone = loaded(folder)
    inputs, ours = logits(backbone)
    with torch.no_grad():
        theirs = model(input_ids=inputs.ids, attention_mask=inputs.mask.long()).logits[inputs.mask]
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    text = {id(p) for p in model.get_decoder().parameters()} | {id(model.lm_head.weight)}
    assert backbone.size() == sum(p.numel() for p in model.parameters() if id(p) in text)
    rest = len({n for n, p in model.named_parameters() if id(p) not in text})
    assert f": {rest} of {rest + len(text)} tensors are of " in caplog.text


@pytest.mark.parametrize("kind", SOME)
def test_every_method_trains_in_it(whole_of, data_dir, kind):
    backbone = loaded(whole_of(kind)[1])
    task = sst2(data_dir, "{~sentence}. {mask}")
    for method_class, options in METHODS:
        method = moved(lambda *given, c=method_class, o=options: c(*given, **o), backbone, task)
        learned = method.learned()
        loss = scores(method, train_batch(method)).logsumexp(-1).sum()
        slopes = torch.autograd.grad(loss, list(learned.values()), allow_unused=True)
        assert all(float(slope.abs().max()) > 0 for slope in slopes)
        backbone = loaded(whole_of(kind)[1])  # LoRA changes the modules of one


@pytest.mark.parametrize("kind", SOME)
def test_filled_weights_are_those_that_are_read(whole_of, kind):
    folder = whole_of(kind)[1]
    backbone, quantized = loaded(folder), loaded(folder, "int8")
    config = backbone._library_config(backbone.config)
    model = weights.skeleton(type(backbone.model), config, folder, own_output=False)
    assert weights.fill(model, folder, torch.float32, "cpu") == set()
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, backbone.model.get_parameter(name)), name
    ours, exact = logits(quantized)[1], logits(backbone)[1]
    assert float((ours - exact).abs().max()) < 0.1 * float(exact.abs().max())


def without(part):
    return lambda tensors: {name: t for name, t in tensors.items() if part not in name}


def twice(tensors):
    text = {name: t.clone() for name, t in tensors.items() if "language_model" in name}
    return tensors | {name.replace("language_model", "other"): t for name, t in text.items()}


WRONG = {
    "a tower alone": (
        without("language_model"),
        r"of \d+ tensors, none could be embed_tokens.weight",
    ),
    "two stacks": (
        twice,
        "language_model.model.embed_tokens.weight and other.model.embed_tokens.w",
    ),
    "no map": (
        without("0.mlp.up_proj"),
        "lack 1 tensors, among them model.layers.0.mlp.up_proj.weight",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_folder_without_exactly_one_whole_text_part_is_refused(whole_of, tmp_path, case):
    change, told = WRONG[case]
    folder = copied(whole_of("gemma3")[1], tmp_path / "copy", change)
    with pytest.raises(UserError, match=told):
        loaded(folder)


def test_a_missing_shard_is_refused_by_its_tensor(whole_of, tmp_path):
    folder = copied(whole_of("gemma3")[1], tmp_path / "copy", dict)
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    index = {"weight_map": {"language_model.model.lost.weight": "model-00002-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(
        UserError, match=r"language_model.model.lost.weight should be in model-00002"
    ):
        loaded(folder)


def test_the_configuration_is_that_of_the_text(whole_of, tmp_path):
    folder = copied(whole_of("gemma3")[1], tmp_path / "copy", dict)
    stated = json.loads((folder / "config.json").read_text())
    text = read_config(folder)
    assert (text["model_type"], text["text_of"]) == ("gemma3_text", "gemma3")
    assert text["architectures"] is None and text["tie_word_embeddings"] is True
    assert text["pad_token_id"] == 0 and text["num_hidden_layers"] == 2
    before = fingerprint(folder)
    stated["vision_config"]["num_hidden_layers"] = 3
    stated |= {"tie_word_embeddings": False, "pad_token_id": 1}
    stated["text_config"]["pad_token_id"] = None
    (folder / "config.json").write_text(json.dumps(stated))
    assert fingerprint(folder) != before
    text = read_config(folder)
    assert (text["pad_token_id"], text["tie_word_embeddings"]) == (1, False)
    backbone = PretrainedBackbone(name="x", hub="a/b", config=stated)
    assert backbone.config == text and backbone.shape.layers == 2
    with pytest.raises(UserError, match=r"backbone=x: config.json cannot be read as a model"):
        PretrainedBackbone(name="x", hub="a/b", config={**stated, "text_config": {"head_dim": "a"}})


def test_a_configuration_that_states_the_text_beside_the_vision_is_read():
    """Qwen2-VL's first checkpoints have one list of keys."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 50}
    sizes |= {"num_key_value_heads": 2, "intermediate_size": 48, "rope_scaling": types.MROPE}
    config = {"model_type": "qwen2_vl", "vision_config": {"depth": 2}, **sizes}
    backbone = PretrainedBackbone(name="x", hub="a/b", config=config)
    assert backbone.config["model_type"] == "qwen2_vl_text"
    assert (backbone.shape.layers, backbone.shape.head_size) == (2, 8)


def test_logits_have_the_scale_of_the_whole_model():
    config = {"model_type": "aya_vision", "text_config": {"num_hidden_layers": 2}}
    backbone = PretrainedBackbone(name="x", hub="a/b", config=config)
    assert backbone.config["model_type"] == "cohere2" and backbone.config["logit_scale"] == 1.0


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (
            {"model_type": "clip", "text_config": {"num_hidden_layers": 2}},
            "'clip_text_model' is none",
        ),
        (
            {"model_type": "granite_docling", "text_config": {"logits_scaling": 3.0}},
            "has logits_scaling",
        ),
    ],
)
def test_a_text_part_that_predicts_no_words_by_a_plain_head_is_refused(config, told):
    with pytest.raises(UserError, match=told):
        PretrainedBackbone(name="x", hub="a/b", config=config)


@pytest.mark.parametrize("kind", ["gemma3", "qwen2_5_vl"])
def test_it_writes_what_the_whole_model_writes(whole_of, kind):
    model, backbone = whole_of(kind)[0], loaded(whole_of(kind)[1])
    inputs = proof._rows(backbone, (5,))
    ours = generate(backbone, inputs, Decoding(max_new_tokens=6, ends=()))
    theirs = model.generate(
        input_ids=inputs.ids,
        attention_mask=inputs.mask.long(),
        max_new_tokens=6,
        do_sample=False,
        eos_token_id=None,
    )
    assert ours == theirs[:, 5:].tolist()


@pytest.mark.parametrize("kind", SOME)
def test_lora_is_exported_for_the_whole_model(whole_of, data_dir, tmp_path, kind):
    package("peft")
    backbone, task = loaded(whole_of(kind)[1]), opinions(data_dir, "{~sentence} It was {mask}")
    low = reads(LoRA, reading("verbalizer"), rank=2, alpha=4)
    method = moved(low, backbone, task)
    form, difference = compared(method, tmp_path / "adapter", task.load("train"))
    assert difference.equal and form.reader.auto == "AutoModelForMultimodalLM"
    assert all(".language_model." in name for name in form.tensors)
    for make in (reads(PromptTuning, reading("verbalizer"), length=3), LoRA):
        told = f"is the whole {kind} model, which has LoRA"
        with pytest.raises(UserError, match=told):
            stock.form_of(moved(make, loaded(whole_of(kind)[1]), task))


def test_tuned_weights_are_exported_in_the_whole_model(whole_of, data_dir, tmp_path):
    whole, folder = whole_of("qwen3_vl")
    backbone, task = loaded(folder), opinions(data_dir, "{~sentence} It was {mask}")
    tuned = reads(FineTuning, reading("verbalizer"))
    method = moved(tuned, backbone, task, by=0.01)
    form = stock.whole_of(method)
    stock.write_whole(tmp_path / "whole", form, method, "")
    model = stock.load_whole(tmp_path / "whole", form, method, "cpu")
    assert parity(method, model, form, task.load("train")).equal
    before = whole.state_dict()
    moved_names = {n for n, p in model.state_dict().items() if not torch.equal(p, before[n])}
    assert moved_names and not any("visual" in name for name in moved_names)


def test_a_folder_is_imported_whole_with_the_template_of_its_processor(whole_of, tmp_path):
    folder = copied(whole_of("gemma3")[1], tmp_path / "copy", dict)
    (folder / "chat_template.json").write_text('{"chat_template": "{{ messages[0].content }}"}')
    out = tmp_path / "out"
    line = import_hf(folder, out).line()
    assert line.endswith("all parts of gemma3, of which runs read the text")
    assert (
        load_file(out / "model.safetensors").keys()
        == load_file(folder / "model.safetensors").keys()
    )
    assert template_of(loaded(out)) == "{{ messages[0].content }}"


def test_doctor_says_that_it_is_a_part(whole_of):
    lines = backbone_checks([f"backbone.path={whole_of('qwen3_vl')[1]}"])
    assert "2 layers, the text part of a qwen3_vl model, read from a traced pass" in lines[0].says


def test_an_output_in_the_files_is_used_whatever_the_configuration_says(whole_of, tmp_path):
    """Mistral Small 3.1 does not say that its output is not the word embeddings."""

    def change(tensors):
        table = tensors["language_model.model.embed_tokens.weight"]
        return tensors | {"language_model.lm_head.weight": table.flip(0).contiguous()}

    folder = copied(whole_of("mistral3")[1], tmp_path / "copy", change)
    assert json.loads((folder / "config.json").read_text())["tie_word_embeddings"]
    whole = transformers.Mistral3ForConditionalGeneration.from_pretrained(folder).eval()
    backbone = PretrainedBackbone(name="whole", path=str(folder), dtype="fp32")
    size = backbone.size()
    backbone.load()
    inputs, ours = logits(backbone)
    with torch.no_grad():
        theirs = whole(input_ids=inputs.ids, attention_mask=inputs.mask.long()).logits
    torch.testing.assert_close(ours, theirs[inputs.mask], rtol=1e-5, atol=1e-5)
    assert size == backbone.size()
