"""DePT against the paper's equation and prompt tuning; answers that are written; two rates."""

import re
from functools import partial

import pytest
import torch
import transformers

from ptrun.errors import UserError
from ptrun.method.dept import DePT
from ptrun.method.prompt_tuning import PromptTuning
from ptrun.testing import read
from tests.exporting.runs import shipped
from tests.readings import reading
from tests.small_runs import fitted, member, scores, sst2, train_batch

P, R = 3, 4
MODELS = {"bert": "BertForMaskedLM", "gpt2": "GPT2LMHeadModel", "t5": "T5ForConditionalGeneration"}
WORDS = reading("verbalizer")


def moved(method):
    with torch.no_grad():
        for tensor in method.prompt.parameters():
            tensor.normal_(std=0.3)
    return method


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("tokens", [256, 4])
@torch.no_grad()
def test_row_i_of_the_product_joins_token_i(data_dir, kind, tokens):
    """[P; E(x) + 8 / sqrt(r) A B] in the model of transformers; of long texts the first tokens."""
    backbone, task = shipped(f"pocket_{kind}"), sst2(data_dir, "{~sentence} It was {mask}")
    method = moved(DePT(backbone, task, WORDS, length=P, rank=R, tokens=tokens))
    batch = train_batch(method)
    model = getattr(transformers, MODELS[kind]).from_pretrained(backbone.folder).float().eval()
    text = model.get_input_embeddings()(batch.ids)
    count = min(tokens, text.shape[1])
    assert (count == tokens) == (tokens == 4)
    text[:, :count] += 8 / R**0.5 * (method.prompt.rows @ method.prompt.columns)[:count]
    vectors = method.prompt.table.expand(len(batch), -1, -1)
    mask = torch.cat([torch.ones(len(batch), P), batch.mask.float()], dim=1)
    inputs = {"inputs_embeds": torch.cat([vectors, text], dim=1), "attention_mask": mask}
    if batch.decoder is not None:
        inputs["decoder_input_ids"] = batch.decoder
    given = method.inputs(batch)
    at = given.logits_at
    expected = model(**inputs).logits[at.rows, at.columns]
    torch.testing.assert_close(backbone.forward(given).logits, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", ["bert", "gpt2", "t5", "blocklm"])
def test_rank_0_is_prompt_tuning(tiny, data_dir, kind):
    """Names, logits and gradients, to the last bit."""
    backbone, task, found = tiny(kind), sst2(data_dir), []
    for make in (partial(DePT, rank=0), PromptTuning):
        torch.manual_seed(5)
        method = make(backbone, task, length=P)
        for parameter in method.learned().values():
            parameter.requires_grad_(True)
        batch = train_batch(method, key=3)
        logits = scores(method, batch)
        logits.square().sum().backward()
        found.append((logits, {n: p.grad for n, p in method.learned().items()}))
    (ours, gradients), (theirs, expected) = found
    assert torch.equal(ours, theirs) and gradients.keys() == expected.keys()
    assert all(torch.equal(gradients[name], expected[name]) for name in expected)


@torch.no_grad()
def test_it_starts_from_prompt_tuning(tiny, data_dir):
    backbone, task = tiny("bert"), sst2(data_dir)
    method, plain = DePT(backbone, task, length=P, rank=R), PromptTuning(backbone, task, length=P)
    plain.load_exported(method.exported())
    batch = train_batch(method)
    assert torch.equal(scores(method, batch), scores(plain, batch))
    assert float(method.prompt.rows.abs().max()) <= R**-0.5


@torch.no_grad()
def test_the_tokens_of_an_answer_stay_as_they_are():
    """They are written one by one with the backbone's embeddings, and learned with these."""
    line = ["method=dept", "method.length=3", "task=pocket_writing", "backbone=pocket_gpt2"]
    method, batch, _ = read(*line)
    assert not moved(method).replays and read(*line[:2])[0].replays
    prompts = [method.readout.prompt(f) for f in batch.features]
    embeddings, plain = method.inputs(batch).embeddings[:, P:], method.backbone.embed(batch.ids)
    for i, (whole, prompt) in enumerate(zip(batch.rows, prompts, strict=True)):
        count = len(prompt.rows[0].ids)
        assert count < len(whole.ids)
        changed = (embeddings[i] != plain[i]).any(dim=-1)
        assert changed[:count].all() and not changed[count:].any()


def test_the_pair_has_a_rate_of_its_own(tiny, data_dir):
    """Adam's first step moves a number by its rate."""
    make = partial(DePT, length=P, rank=R, pair_lr=1e-4)
    one = member(make, tiny("bert"), sst2(data_dir), max_steps=2, lr=1e-2, clip=None)
    before = {n: p.detach().clone() for n, p in one.learned.items()}
    one.total = 1
    fitted([one])
    largest = {n: float((p.detach() - before[n]).abs().max()) for n, p in one.learned.items()}
    assert largest["prompt.columns"] == pytest.approx(1e-4, rel=0.01)
    assert largest["prompt.table"] == pytest.approx(1e-2, rel=0.01)
    assert largest["prompt.rows"] == 0.0  # the product's other factor is zero yet


def test_two_ranks_share_a_pass(tiny, data_dir):
    backbone, task = tiny("bert"), sst2(data_dir)
    makes = [partial(DePT, length=n, rank=r, pair_lr=lr) for n, r, lr in ((2, 1, None), (5, 4, 1))]
    alone = [member(make, backbone, task, max_steps=3) for make in makes]
    together = [member(make, backbone, task, max_steps=3) for make in makes]
    for one in alone:
        fitted([one])
    fitted(together)
    for one, other in zip(alone, together, strict=True):
        for name, tensor in one.method.exported().items():
            torch.testing.assert_close(other.method.exported()[name], tensor, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"rank": -1}, "method.rank=-1 tokens=256: use 0 or more, and 1 or more"),
        ({"tokens": 0}, "tokens=0: use 0 or more, and 1 or more"),
        ({"pair_lr": 0.0}, "method.pair_lr is 0.0; use more than 0, or null for train.lr"),
        ({"length": 0}, "method.length is 0"),
    ],
)
def test_wrong_values_are_refused(tiny, data_dir, keys, message):
    with pytest.raises(UserError, match=re.escape(message)):
        DePT(tiny("bert"), sst2(data_dir), **{"length": P, "rank": R, **keys})
