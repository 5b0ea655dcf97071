"""`method=attempt` against its formula in plain torch. Tolerance 1e-5."""

import math
from functools import partial

import pytest
import torch
from torch.nn import functional

import ptrun
from ptrun.errors import UserError
from ptrun.exporting.stock_form import form_of
from ptrun.method.attempt import Attempt
from ptrun.testing import read
from tests.method.test_every_kind import joined_members_are_alone, rows_are_alone
from tests.small_runs import engine, sst2

P = 3
EQUAL = {"atol": 1e-5, "rtol": 1e-5}
ONE = ["method=attempt", f"method.length={P}"]


def mixing(*overrides):
    """Return a method with two random source prompts, and a batch of two texts."""
    method, batch, _ = read(*ONE, *overrides)
    with torch.no_grad():
        for tensor in method.prompt.parameters():
            tensor.normal_()
    method.prompt.sources = torch.randn(2, P, 128)
    return method, batch


@torch.no_grad()
def test_each_text_has_the_prompt_of_the_formula():
    method, batch = mixing()
    down, _, up, norm = method.prompt.attention
    prompts = [*method.prompt.sources, method.prompt.table]
    for row, vectors in enumerate(method.vectors(batch)):
        embedded = method.backbone.embed(batch.ids[row, : batch.lengths[row]])
        hidden = functional.silu(down.weight @ embedded.max(dim=0).values)
        query = functional.layer_norm(up.weight @ hidden, [128], norm.weight, norm.bias)
        scores = torch.stack([query @ prompt.max(dim=0).values for prompt in prompts])
        shares = (scores / (128 * math.e)).softmax(dim=0)
        mixed = sum(share * prompt for share, prompt in zip(shares, prompts, strict=True))
        torch.testing.assert_close(vectors, method.prompt.table + mixed, **EQUAL)
    assert not torch.allclose(*method.vectors(batch)[:2], atol=1e-3)
    assert torch.equal(method.inputs(batch).embeddings[:, :P], method.vectors(batch))


@torch.no_grad()
def test_the_attention_of_a_zero_network_is_uniform():
    method, batch = mixing()
    method.prompt.attention[2].weight.zero_()
    method.prompt.attention[3].bias.zero_()
    prompts = torch.cat([method.prompt.sources, method.prompt.table[None]])
    expected = (method.prompt.table + prompts.mean(dim=0)).expand(2, -1, -1)
    torch.testing.assert_close(method.vectors(batch), expected, **EQUAL)


@torch.no_grad()
def test_without_sources_it_is_prompt_tuning_of_twice_the_vectors():
    method, batch, _ = read(*ONE)
    plain, _, _ = read("method=prompt_tuning", f"method.length={P}")
    plain.prompt.begin(2 * method.prompt.table)
    torch.testing.assert_close(
        method.inputs(batch).embeddings, plain.inputs(batch).embeddings, **EQUAL
    )


def test_sources_are_frozen_and_saved():
    method, _ = mixing()
    assert "prompt.sources" not in method.learned()
    other, _, _ = read(*ONE)
    other.load_exported(method.exported())
    assert torch.equal(other.prompt.sources, method.prompt.sources)


def test_rows_and_members_are_alone(tiny, rows):
    backbone, members = tiny(), []
    for length in (2, 3, 4):
        method = Attempt(backbone, sst2(rows), length=length)
        engine(backbone).place([method])
        method.prompt.sources = torch.randn(2, length, backbone.shape.embedding_size)
        members.append(method)
    rows_are_alone(members[0])
    joined_members_are_alone(members, atol=1e-5)


def test_peft_cannot_hold_it():
    with pytest.raises(UserError, match="its prompt depends on the text"):
        form_of(mixing()[0])


@pytest.mark.slow
def test_a_run_mixes_the_prompts_of_other_runs(tmp_path):
    rows = "+task.source.rows={train: 6, validation: 3, test: 3}"
    steps = [rows, "train.max_steps=2", "train.eval_every=2", "train.batch_size=4"]
    run = partial(ptrun.run, *steps, f"outputs={tmp_path}")
    plain = ["method=prompt_tuning", f"method.length={P}"]
    sources = [run(*plain, f"task={name}") for name in ("pocket_sentiment", "pocket_pairs")]
    joined = "+".join(done.folder.name for done in sources)
    done = run(*ONE, "task=pocket_topics", f"start=joined:{joined}")
    for source, saved in zip(sources, done.prompt["prompt.sources"], strict=True):
        assert torch.equal(source.prompt["prompt.table"], saved)
    assert done.predict([{"text": "The river is wide."}])
    with pytest.raises(UserError, match=r"is no run of prompt_tuning with method\.length=4"):
        run("method=attempt", "method.length=4", "task=pocket_topics", f"start=joined:{joined}")
