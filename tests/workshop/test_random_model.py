"""Random models of every family: whole, the same for the same seed, and fit for a run."""

import hashlib
from pathlib import Path

import pytest
import torch
import transformers
from safetensors import safe_open

from ptrun.backbone import files
from ptrun.backbone.base import BackboneInput, DecoderInput, Positions
from ptrun.errors import UserError
from tests.families import PaperBackbone
from workshop import random_model
from workshop.random_model import main

T5 = ["backbone=t5_xxl_lm_adapt", "model.num_layers=2", "model.num_decoder_layers=2"]
T5 += ["model.d_model=64", "model.d_kv=16", "model.d_ff=96", "model.num_heads=2"]
BERT = ["model.hidden_size=64", "model.num_hidden_layers=2", "model.intermediate_size=96"]
BERT += ["model.num_attention_heads=2"]
KINDS = {
    "t5": [*T5, "model.vocab_size=2500"],
    "bert": ["backbone=bert_base_cased", *BERT, "model.vocab_size=2800"],
    "electra": ["backbone=electra_base", *BERT, "model.embedding_size=32"],
    "roberta": ["backbone=roberta_large", *BERT],
    "deberta": ["backbone=deberta_xlarge", *BERT],
    "albert": ["backbone=albert_xxlarge_v2", *BERT],
    "gpt2": ["backbone=gpt2", "model.n_embd=64", "model.n_layer=2", "model.n_head=2"],
    "llama": ["model.model_type=llama", *BERT, "model.vocab_size=2900"],
}
CLASSES = {
    "t5": "T5ForConditionalGeneration",
    "bert": "BertForPreTraining",
    "gpt2": "GPT2LMHeadModel",
    "llama": "LlamaForCausalLM",
}


def write(out, *arguments):
    main([f"out={out}", *arguments])
    return Path(out)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    root = tmp_path_factory.mktemp("random")

    def of(kind):
        there = root / kind
        return there if there.exists() else write(there, *KINDS[kind])

    return of


def tensors(folder):
    found = {}
    for file in files.weight_files(folder):
        with safe_open(file, "pt") as opened:
            found |= {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_it_loads_and_its_logits_are_of_sensible_size_in_bf16(model, kind):
    backbone = PaperBackbone(name=kind, path=str(model(kind)))
    backbone.load(torch.bfloat16)
    ids = torch.tensor([backbone.tokenizer()("the film was good").input_ids])
    mask = torch.ones_like(ids, dtype=torch.bool)
    at = Positions(torch.tensor([0]), torch.tensor([0]))
    start = DecoderInput(mask[:, :1], ids=torch.zeros(1, 1, dtype=torch.long))
    given = BackboneInput(ids=ids, mask=mask, logits_at=at)
    if backbone.family == "seq2seq":
        given = BackboneInput(ids=ids, mask=mask, logits_at=at, decoder=start)
    logits = backbone.forward(given).logits.float()
    assert bool(logits.isfinite().all()) and 1e-4 < logits.abs().max() < 8
    assert len(backbone.tokenizer()) <= backbone.model.config.vocab_size


@pytest.mark.parametrize("kind", CLASSES)
def test_it_holds_what_the_library_would_save(model, kind, tmp_path):
    there = model(kind)
    loaded, report = getattr(transformers, CLASSES[kind]).from_pretrained(
        there, output_loading_info=True
    )
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    loaded.save_pretrained(tmp_path)
    ours, theirs = tensors(there), tensors(tmp_path)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert {tensor.dtype for tensor in ours.values()} == {torch.bfloat16}
    if kind == "t5":
        assert not torch.equal(loaded.lm_head.weight, loaded.shared.weight)


@pytest.mark.parametrize(
    ("dtype", "digest"),
    [(torch.bfloat16, "3f3775983ed7d250"), (torch.float32, "5e09ce1efe18a9de")],
    ids=str,
)
def test_the_bits_are_those_of_every_machine(dtype, digest):
    """The hashes were made once; arithmetic that depends on the processor would move them."""
    layout = torch.empty(64, 31, dtype=dtype, device="meta")
    name = "encoder.block.0.layer.0.SelfAttention.o.weight"
    drawn = random_model.draw(name, layout, transformers.T5Config(), 1)
    bits = drawn.flatten().view(torch.uint8).numpy().tobytes()
    assert hashlib.sha256(bits).hexdigest()[:16] == digest


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["backbone=gpt3"], "backbone=gpt3.*did you mean .gpt2."),
        (["backbone=gpt2", "model.n_layers=2"], "model.n_layers: unknown; did you mean '"),
        (["backbone=gpt2", "model.vocab_size=500"], "vocab_size is 500, .* has 2800 entries"),
        (["model.n_layer=2"], "model type .None. is none that transformers"),
    ],
)
def test_what_cannot_be_made_is_refused(tmp_path, arguments, told):
    with pytest.raises(UserError, match=f"(?s){told}"):
        write(tmp_path / "out", *arguments)
    assert not (tmp_path / "out").exists()
