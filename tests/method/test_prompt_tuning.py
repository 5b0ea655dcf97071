"""Prompt tuning against the library, PEFT and hand-written references; its other parameterisation.

Tolerances: 1e-5 on logits and losses of equal weights; what training adds is said where it is.
"""

from dataclasses import replace
from functools import partial

import pytest
import torch
import transformers

from ptrun.backbone.base import Positions
from ptrun.method.prompt_tuning import PromptTuning
from tests.conftest import CLASSES
from tests.exporting.runs import shipped
from tests.readings import reading
from tests.small_runs import fitted, member, sst2, train_batch
from tests.tiers import package

P = 5
EQUAL = {"atol": 1e-5, "rtol": 0}
CAUSAL, OTHER = "{~sentence} It was {mask}", "{~sentence} It was {mask}."


def pocket(kind):
    return shipped(f"pocket_{kind}")


def hybrid(backbone, task, sentinel=True, **keys):
    read = reading("verbalizer", sentinel=sentinel)
    return PromptTuning(backbone, task, read, **{"length": P, **keys})


def library(backbone, name):
    return getattr(transformers, name).from_pretrained(backbone.folder, dtype=torch.float32).eval()


def prompted(method, model, batch):
    """Return prompt and text as embeddings and a mask, put together here."""
    vectors = method.prompt.vectors().detach().expand(len(batch), -1, -1)
    text = model.get_input_embeddings()(batch.ids)
    embedded = torch.cat([text[:, : method.after], vectors, text[:, method.after :]], dim=1)
    return embedded, torch.cat([torch.ones(len(batch), P), batch.mask.float()], dim=1)


@pytest.mark.parametrize(("kind", "after"), [("bert", None), ("bert", 1), ("gpt2", 0)])
@torch.no_grad()
def test_the_vectors_stand_before_the_pattern_and_its_mask_is_read(data_dir, kind, after):
    """Or after its [CLS]."""
    backbone, task = pocket(kind), sst2(data_dir, CAUSAL if kind == "gpt2" else OTHER)
    method = hybrid(backbone, task, after=after)
    batch = train_batch(method)
    model = library(backbone, CLASSES[kind] if kind == "gpt2" else "BertForMaskedLM")
    embedded, mask = prompted(method, model, batch)
    logits = model(inputs_embeds=embedded, attention_mask=mask).logits
    mask_id = backbone.tokenizer().mask_token_id
    last = [len(row.ids) - 1 for row in batch.rows]
    columns = last if kind == "gpt2" else [row.ids.index(mask_id) for row in batch.rows]
    expected = logits[range(len(batch)), [P + column for column in columns]]
    torch.testing.assert_close(backbone.forward(method.inputs(batch)).logits, expected, **EQUAL)


def peft_of(model, kind, method):
    package("peft")
    import peft

    config = peft.PromptTuningConfig(
        task_type=kind, num_virtual_tokens=P, num_transformer_submodules=1
    )
    made = peft.get_peft_model(model, config)
    table = made.prompt_encoder["default"].embedding.weight
    table.data.copy_(method.prompt.vectors())
    return made.eval()


PEFT = {
    "gpt2": ("GPT2LMHeadModel", "CAUSAL_LM", CAUSAL),
    "t5": ("T5ForConditionalGeneration", "SEQ_2_SEQ_LM", OTHER),
    "bert": ("BertForSequenceClassification", "SEQ_CLS", None),
}


@pytest.mark.parametrize("kind", PEFT)
@torch.no_grad()
def test_logits_equal_pefts(tiny, data_dir, kind):
    """On BERT PEFT 0.21 reads a vector, not [CLS], as position 0: reads are set to its."""
    name, task_type, pattern = PEFT[kind]
    backbone, task = tiny() if kind == "bert" else pocket(kind), sst2(data_dir, pattern)
    method = hybrid(backbone, task) if pattern else PromptTuning(backbone, task, length=P)
    batch, model = train_batch(method), library(backbone, name)
    inputs = {"input_ids": batch.ids, "attention_mask": batch.mask.long()}
    given = method.inputs(batch)
    if kind == "bert":
        inputs["token_type_ids"] = batch.types
        model.classifier.load_state_dict(method.readout.linear.state_dict())
        at = Positions(given.pooled_at.rows, torch.zeros_like(given.pooled_at.columns))
        given = replace(given, pooled_at=at)
    if kind == "t5":
        inputs["decoder_input_ids"] = batch.decoder
    output = backbone.forward(given)
    ours = method.readout.scores(output, batch) if kind == "bert" else output.logits
    theirs = peft_of(model, task_type, method)(**inputs).logits
    if kind != "bert":
        theirs = theirs[given.logits_at.rows, given.logits_at.columns]
    torch.testing.assert_close(ours, theirs, **EQUAL)


@pytest.mark.parametrize("kind", ["bert", "roberta", "electra", "albert"])
@torch.no_grad()
def test_double_embedding_is_the_released_codes(tiny, data_dir, kind):
    """P-tuning v2's code: the whole embedding layer, vectors before it, and then the model again.

    Segments are given the first time alone; [CLS] is read behind the vectors.
    """
    backbone, task = tiny(kind), sst2(data_dir)
    method = PromptTuning(backbone, task, length=P, double_embedding=True)
    batch, types = train_batch(method), {}
    if batch.types is not None:
        segments = (torch.arange(batch.ids.shape[1]) % 2).expand_as(batch.ids)
        batch, types = replace(batch, types=segments), {"token_type_ids": segments}
    body = library(backbone, CLASSES[kind]).base_model
    raw = body.embeddings(input_ids=batch.ids, **types)
    vectors = method.prompt.table.expand(len(batch), -1, -1)
    mask = torch.cat([torch.ones(len(batch), P), batch.mask.float()], dim=1)
    expected = body(inputs_embeds=torch.cat([vectors, raw], dim=1), attention_mask=mask)[0][:, P]
    once = PromptTuning(backbone, task, length=P)
    once.load_exported(method.exported())

    def read(prompted):
        given = prompted.inputs(batch)
        at = given.hidden_at or given.pooled_at
        return backbone.forward(replace(given, hidden_at=at, pooled_at=None)).hidden

    torch.testing.assert_close(read(method), expected, **EQUAL)
    assert not torch.allclose(read(once), expected, atol=1e-2)


def rescaled(data_dir, rescale, lr, epsilon=1e-8, **train):
    """Return a prompt's vectors after 20 steps, and how far they went on average."""
    backbone, task = pocket("bert"), sst2(data_dir, OTHER)
    one = member(partial(hybrid, rescale=rescale), backbone, task, lr=lr, **train)
    for group in one.optimizer.param_groups:
        group["eps"] = epsilon
    start = one.method.prompt.vectors().detach().clone()
    fitted([one])
    vectors = one.method.prompt.vectors().detach()
    return vectors, float((vectors - start).abs().mean())


@pytest.mark.slow
def test_decay_clipping_and_epsilon_are_then_a_hundredth(data_dir):
    """20 steps that clip; rounding, and the 1e-6 that clipping adds to a norm: 1e-4."""
    ours, moved = rescaled(data_dir, 100.0, 1e-3, clip=0.5, weight_decay=0.1)
    scaled = {"clip": 0.005, "weight_decay": 0.001, "epsilon": 1e-10}
    theirs, _ = rescaled(data_dir, 1.0, 1e-1, **scaled)
    free, _ = rescaled(data_dir, 1.0, 1e-1, **{**scaled, "clip": 0.5})
    assert moved > 0.2 and not torch.allclose(ours, free, atol=1e-1)
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=0)


def test_a_rescaled_prompt_starts_and_is_exported_as_its_vectors(tiny, data_dir):
    backbone, task = tiny(), sst2(data_dir)
    made = []
    for rescale in (1.0, 100.0):
        torch.manual_seed(3)
        made.append(PromptTuning(backbone, task, length=P, rescale=rescale))
    plain, large = made
    torch.testing.assert_close(large.prompt.table * 100, plain.prompt.table)
    out = large.exported()
    assert torch.equal(out["prompt.table"], large.prompt.vectors())
    plain.load_exported(out)
    assert torch.equal(plain.prompt.table, out["prompt.table"])
    again = PromptTuning(backbone, task, length=P, rescale=7.0)
    again.load_exported(out)
    torch.testing.assert_close(again.prompt.vectors(), out["prompt.table"])
