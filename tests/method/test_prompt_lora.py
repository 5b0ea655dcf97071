"""A prompt and LoRA in one run: prompt tuning at first, later transformers with merged weights."""

import re
from functools import partial

import pytest
import torch
import transformers

from ptrun.backbone.pretrained import transposed
from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.method.prompt_lora import PromptLoRA
from ptrun.method.prompt_tuning import PromptTuning
from ptrun.start import peft
from tests.exporting.runs import shipped
from tests.readings import reading
from tests.small_runs import engine, fitted, member, scores, sst2, train_batch

P, R = 3, 2
MODELS = {"bert": "BertForMaskedLM", "gpt2": "GPT2LMHeadModel", "t5": "T5ForConditionalGeneration"}


@pytest.mark.parametrize("kind", ["bert", "gpt2", "llama", "t5"])
def test_it_starts_as_prompt_tuning(tiny, data_dir, kind):
    """Logits and the gradient of the vectors, to the last bit; LoRA's second maps learn at once.

    Not those of a decoder that reads one token.
    """
    backbone, task = tiny(kind), sst2(data_dir)
    both = PromptLoRA(backbone, task, length=P, rank=R)
    plain = PromptTuning(backbone, task, length=P)
    engine(backbone).place([both])
    plain.load_exported(both.exported())
    logits = []
    for method in (both, plain):
        for parameter in method.learned().values():
            parameter.requires_grad_(True)
        logits.append(scores(method, train_batch(method, key=3)))
        logits[-1].square().sum().backward()
    assert torch.equal(*logits)
    assert torch.equal(both.prompt.table.grad, plain.prompt.table.grad)
    ups = [p for n, p in both.learned().items() if n.endswith("up.weight")]
    ups = ups[: 2 * backbone.shape.layers] if kind == "t5" else ups
    assert ups and all(float(p.grad.abs().sum()) > 0 for p in ups)


@pytest.mark.parametrize("kind", MODELS)
@torch.no_grad()
def test_logits_are_those_of_merged_weights_behind_the_vectors(data_dir, kind):
    backbone, task = shipped(f"pocket_{kind}"), sst2(data_dir, "{~sentence} It was {mask}")
    method = PromptLoRA(backbone, task, reading("verbalizer"), length=P, rank=R, alpha=6)
    engine(backbone).place([method])
    for tensor in method.prompt.parameters():
        tensor.normal_(std=0.2)
    model = getattr(transformers, MODELS[kind]).from_pretrained(backbone.folder).float().eval()
    for names in method.shared:
        low, weight = method.lora[names[0].replace(".", "_")], model.get_submodule(names[0]).weight
        added = 6 / R * low.up.weight @ low.down.weight
        weight += added.T if transposed(backbone) else added
    batch = train_batch(method)
    vectors = method.prompt.table.expand(len(batch), -1, -1)
    text = torch.cat([vectors, model.get_input_embeddings()(batch.ids)], dim=1)
    mask = torch.cat([torch.ones(len(batch), P), batch.mask.float()], dim=1)
    decoder = {} if batch.decoder is None else {"decoder_input_ids": batch.decoder}
    given = method.inputs(batch)
    at = given.logits_at
    logits = model(inputs_embeds=text, attention_mask=mask, **decoder).logits[at.rows, at.columns]
    torch.testing.assert_close(backbone.forward(given).logits, logits, atol=1e-4, rtol=1e-4)


def test_both_parts_learn_each_with_its_rate(tiny, data_dir):
    """Adam's first step moves a number by its rate."""
    make = partial(PromptLoRA, length=P, rank=R, lora_lr=1e-4)
    one = member(make, tiny("bert"), sst2(data_dir), max_steps=1, lr=1e-2, clip=None)
    before = {n: p.detach().clone() for n, p in one.learned.items()}
    fitted([one])
    largest = {n: float((p.detach() - before[n]).abs().max()) for n, p in one.learned.items()}
    assert {*largest} == {n for n in largest if n.startswith(("prompt.", "readout."))}
    assert largest["prompt.table"] == pytest.approx(1e-2, rel=0.01)
    ups = [moved for name, moved in largest.items() if name.endswith("up.weight")]
    assert ups == pytest.approx([1e-4] * len(ups), rel=0.01) and len(ups) > 2


def test_wrong_values_are_refused(tiny, data_dir):
    for key, value, message in (
        ("lora_lr", -1.0, "method.lora_lr is -1.0; use more than 0, or null for train.lr"),
        ("rank", 0, "method.rank is 0; use 1 or more"),
        ("length", 0, "method.length is 0; use 1 or more"),
    ):
        with pytest.raises(UserError, match=re.escape(message)):
            PromptLoRA(tiny("bert"), sst2(data_dir), **{"length": P, "rank": R, key: value})


def test_an_adapter_of_peft_with_lora_alone_is_refused(tiny, tmp_path):
    """It would start one half, and leave the other at random."""
    adapter = peft.PeftAdapter(tmp_path, {"peft_type": "LORA"}, "")
    node = compose_run(["method=prompt_lora"]).config["method"]
    with pytest.raises(UserError, match="it is a LORA, from which PromptLoRA as configured cannot"):
        peft.check(adapter, PromptLoRA, node, tiny("bert"))
