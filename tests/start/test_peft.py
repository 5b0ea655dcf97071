"""`start=peft:DIR`: what PEFT saved comes back exactly, and what does not fit is refused."""

import json
from functools import partial

import pytest
import torch
import transformers
from peft import (
    IA3Config,
    LoraConfig,
    PrefixTuningConfig,
    PromptEncoderConfig,
    PromptTuningConfig,
    get_peft_model,
)
from safetensors.torch import load_file

from ptrun.errors import UserError
from ptrun.method.fine_tuning import FineTuning
from ptrun.method.lora import LoRA
from ptrun.method.peft import PeftMethod
from ptrun.method.prompt_tuning import PromptTuning
from ptrun.method.ptuning_v2 import PTuningV2
from ptrun.start import peft
from tests.small_runs import conll03, engine, scores, train_batch

TAGS = {"task_type": "TOKEN_CLS"}
LOW = {"r": 4, "lora_alpha": 8, "target_modules": ["query", "value"]}
SOFT = {"num_virtual_tokens": 4, **TAGS}
MLP = {"encoder_hidden_size": 8, **SOFT}
PROMPT, PREFIX, SCALES = PromptTuningConfig(**SOFT), PrefixTuningConfig(**SOFT), IA3Config(**TAGS)
PT, V2 = partial(PromptTuning, length=4), partial(PTuningV2, length=4)
RANK_4 = partial(LoRA, rank=4)
IA3 = partial(PeftMethod, config={"peft_type": "IA3"})


def lora(**more):
    return LoraConfig(**{**LOW, **TAGS, **more})


def own_lora(**more):
    return partial(PeftMethod, config={"peft_type": "LORA", **LOW, **more})


def saved(folder, tiny_folder, config, kind="bert"):
    """Write the folder that stock PEFT writes, with random tensors; return its model."""
    auto = transformers.AutoModelForTokenClassification
    stock = auto.from_pretrained(tiny_folder(kind), num_labels=5)
    model = get_peft_model(stock, config)
    with torch.no_grad():
        for tensor in model.parameters():
            if tensor.requires_grad:
                tensor.normal_()
    model.save_pretrained(folder)
    return model


def placed(make, backbone, data_dir):
    torch.manual_seed(0)
    method = make(backbone, conll03(data_dir))
    engine(backbone).place([method])
    return method


EQUAL = {
    "prompt": (PROMPT, PT),
    "prompt_rescaled": (PROMPT, partial(PT, rescale=10.0)),
    "p_tuning": (PromptEncoderConfig(**MLP), PT),
    "prefix": (PREFIX, V2),
    "prefix_mlp": (PrefixTuningConfig(prefix_projection=True, **MLP), V2),
    "lora": (lora(), partial(RANK_4, alpha=8)),
    "lora_alpha": (lora(), partial(RANK_4, alpha=2)),
    "lora_rs": (lora(use_rslora=True), partial(RANK_4, alpha=8)),
    "peft_lora": (lora(), own_lora()),
    "dora": (lora(use_dora=True), own_lora(use_dora=True)),
    "ia3": (SCALES, IA3),
}


@pytest.mark.parametrize(("config", "make"), EQUAL.values(), ids=EQUAL)
def test_hidden_states_are_those_of_stock_peft(tiny, tiny_folder, data_dir, tmp_path, config, make):
    model = saved(tmp_path / "adapter", tiny_folder, config).eval()
    method = placed(make, tiny(), data_dir)
    adapter = peft.read(tmp_path / "adapter")
    peft.check(adapter, type(method), {"encoder": "plain"}, method.backbone)
    peft.begin(adapter, method)
    batch = train_batch(method)
    head = model.base_model.get_submodule(
        "classifier" if config.is_prompt_learning else "model.classifier"
    ).modules_to_save["default"]
    method.readout.linear.load_state_dict(head.state_dict())
    with torch.no_grad():
        ours = scores(method, batch)
        theirs = model(batch.ids, batch.mask.long()).logits
    shift = theirs.shape[1] - batch.ids.shape[1]
    at = batch.reads.rows, batch.reads.columns + shift
    torch.testing.assert_close(ours, theirs[at], atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("config", "make"), [(LoraConfig(**LOW), RANK_4), (IA3Config(), IA3)], ids=["lora", "ia3"]
)
def test_an_adapter_of_a_model_without_a_head_is_read(
    tiny, tiny_folder, data_dir, tmp_path, config, make
):
    """`ptrun export` writes one of AutoModel for a sentence classifier."""
    stock = transformers.AutoModel.from_pretrained(tiny_folder("bert"))
    model = get_peft_model(stock, config)
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            tensor.add_(torch.randn(tensor.shape) * (("lora_" in name) or ("ia3_" in name)))
    model.eval().save_pretrained(tmp_path / "adapter")
    method = placed(make, tiny(), data_dir)
    peft.begin(peft.read(tmp_path / "adapter"), method)
    learned = [p.flatten() for p in method.learned().values()]
    for name, tensor in load_file(tmp_path / "adapter" / "adapter_model.safetensors").items():
        if "lora_A" in name or "ia3_" in name:
            assert any(p.equal(tensor.flatten()) for p in learned)


PISSA = lora(init_lora_weights="pissa")
MAPS = ["query", "key", "value"]
UNFIT = [
    (PROMPT, partial(PT, length=5), r"prompt is \[4, 32\] there and \[5, 32\] here. Give the same"),
    (PREFIX, partial(V2, reparameterization="mlp"), "method.reparameterization=embedding"),
    (PREFIX, partial(V2, layers=[1, 2]), r"prompt.table is \[4, 192\] there and \[4, 128\] here"),
    (lora(), partial(LoRA, rank=3), r"is \[4, 32\] there and \[3, 32\]"),
    (lora(target_modules=["query"]), RANK_4, "has no .*value.lora_A.weight"),
    (lora(target_modules=MAPS), RANK_4, "changes .*key.lora_A.weight, which method.targets does"),
    (lora(use_dora=True), RANK_4, "see method=dora"),
    (lora(bias="all"), RANK_4, "it also tunes biases"),
    (PISSA, RANK_4, r"its start \(pissa\) has changed the backbone's own weights"),
    (lora(modules_to_save=["word_embeddings"]), RANK_4, "also holds the module word_embeddings"),
    (lora(), own_lora(lora_alpha=2), "lora_alpha is 8 there and 2 in method.config"),
    (lora(), IA3, "it is a LORA, and this method a IA3"),
    (
        *(SCALES, partial(PeftMethod, config={"peft_type": "IA3", "feedforward_modules": []})),
        "scales the inputs of output.dense",
    ),
]


@pytest.mark.parametrize(("config", "make", "message"), UNFIT)
def test_what_does_not_fit_is_refused(tiny, tiny_folder, data_dir, tmp_path, config, make, message):
    saved(tmp_path / "adapter", tiny_folder, config)
    method = placed(make, tiny(), data_dir)
    with pytest.raises(UserError, match=message):
        peft.begin(peft.read(tmp_path / "adapter"), method)


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        ("PROMPT_TUNING", PTuningV2),
        ("P_TUNING", FineTuning),
        ("PREFIX_TUNING", PromptTuning),
        ("LORA", PromptTuning),
        ("IA3", LoRA),
    ],
)
def test_another_kind_of_method_is_refused_before_weights(tiny, kind, method):
    adapter = peft.PeftAdapter(None, {"peft_type": kind}, "0")
    with pytest.raises(UserError, match=f"it is a {kind}, from which {method.__name__} as"):
        peft.check(adapter, method, {}, tiny())


def test_an_adapter_of_another_hub_model_is_refused(tiny):
    backbone = tiny()
    backbone.hub = "ann/bert"
    config = {"peft_type": "IA3", "base_model_name_or_path": "bob/roberta"}
    with pytest.raises(UserError, match="trained on bob/roberta, and this run is on ann/bert"):
        peft.check(peft.PeftAdapter(None, config, "0"), PeftMethod, {}, backbone)


def test_an_unnamed_model_is_said(tiny, caplog):
    peft.check(peft.PeftAdapter(None, {"peft_type": "IA3"}, "0"), PeftMethod, {}, tiny())
    assert "was trained on an unnamed model" in caplog.text


def test_a_folder_that_is_none_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"expected adapter_config.json, found none"):
        peft.read(tmp_path)
    (tmp_path / "adapter_config.json").write_text("{}")
    (tmp_path / "adapter_model.bin").write_text("pickled")
    with pytest.raises(UserError, match=r"only a pickled adapter_model.bin, which is never opened"):
        peft.read(tmp_path)
    (tmp_path / "adapter_model.safetensors").write_text("damaged")
    with pytest.raises(UserError, match="has no peft_type"):
        peft.read(tmp_path)
    (tmp_path / "adapter_config.json").write_text("{")
    with pytest.raises(UserError, match="is no JSON"):
        peft.read(tmp_path)
    (tmp_path / "adapter_config.json").write_text(json.dumps({"peft_type": "IA3"}))
    with pytest.raises(UserError, match=r"adapter_model.safetensors is damaged"):
        peft.read(tmp_path).tensors()


def test_the_digest_is_that_of_both_files(tiny_folder, tmp_path):
    saved(tmp_path, tiny_folder, SCALES)
    first = peft.read(tmp_path).digest
    assert first == peft.read(tmp_path).digest and len(first) == 16
    text = (tmp_path / "adapter_config.json").read_text()
    (tmp_path / "adapter_config.json").write_text(text + " ")
    assert peft.read(tmp_path).digest != first


def test_a_folder_of_links_is_read(tiny_folder, tmp_path):
    """The hub's cache is made of links."""
    saved(tmp_path / "blobs", tiny_folder, SCALES)
    (tmp_path / "snapshot").mkdir()
    for file in (tmp_path / "blobs").iterdir():
        (tmp_path / "snapshot" / file.name).symlink_to(file)
    assert peft.read(tmp_path / "snapshot").digest == peft.read(tmp_path / "blobs").digest
