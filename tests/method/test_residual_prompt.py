"""Residual prompts against a hand-written reference, prompt tuning, and what is left of a run."""

from functools import partial

import pytest
import torch

from ptrun.errors import UserError
from ptrun.method.prompt_tuning import PromptTuning
from ptrun.method.residual_prompt import ResidualPrompt
from tests.small_runs import fitted, member, scores, sst2, train_batch

P, HIDDEN = 3, 8


@torch.no_grad()
def reference(prompt, row, network):
    """P + LN(W_up ReLU(W_down P + b) + b') of one vector."""
    own = dict(prompt.mlp[network].named_parameters())
    hidden = torch.relu(own["0.weight"] @ prompt.table[row] + own["0.bias"])
    up = own["2.weight"] @ hidden + own["2.bias"]
    normal = (up - up.mean()) / (up.var(correction=0) + 1e-5).sqrt()
    return prompt.table[row] + normal * own["3.weight"] + own["3.bias"]


@pytest.mark.parametrize("separate", [False, True])
def test_vectors_are_the_papers(tiny, data_dir, separate):
    keys = {"length": P, "hidden": HIDDEN, "separate": separate}
    method = ResidualPrompt(tiny("bert"), sst2(data_dir), **keys)
    with torch.no_grad():
        for parameter in method.prompt.parameters():
            parameter.normal_()
    expected = [reference(method.prompt, i, i if separate else 0) for i in range(P)]
    torch.testing.assert_close(method.prompt.vectors(), torch.stack(expected))
    assert len(method.prompt.mlp) == (P if separate else 1)


@pytest.mark.parametrize("kind", ["bert", "gpt2", "t5"])
def test_a_zero_network_is_prompt_tuning(tiny, data_dir, kind):
    """Logits, and the gradient of the vectors, to the last bit."""
    backbone, task = tiny(kind), sst2(data_dir)
    residual = ResidualPrompt(backbone, task, length=P, hidden=HIDDEN)
    plain = PromptTuning(backbone, task, length=P)
    with torch.no_grad():
        for parameter in residual.prompt.mlp.parameters():
            parameter.zero_()
    plain.load_exported(residual.exported())
    logits = []
    for method in (residual, plain):
        method.prompt.table.requires_grad_(True)
        logits.append(scores(method, train_batch(method, key=3)))
        logits[-1].square().sum().backward()
    assert torch.equal(*logits)
    assert torch.equal(residual.prompt.table.grad, plain.prompt.table.grad)


def test_a_run_leaves_vectors_that_prompt_tuning_reads(tiny, data_dir):
    backbone, task = tiny("bert"), sst2(data_dir)
    one = member(partial(ResidualPrompt, length=P, hidden=HIDDEN), backbone, task, max_steps=3)
    fitted([one])
    exported = one.method.exported()
    assert sorted(n for n in exported if n.startswith("prompt.")) == ["prompt.table"]
    assert not torch.allclose(exported["prompt.table"], one.method.prompt.table, atol=0.1)
    batch = train_batch(one.method)
    for make in (partial(ResidualPrompt, hidden=HIDDEN), PromptTuning):
        method = make(backbone, task, length=P)
        method.load_exported(exported)
        assert torch.equal(scores(method, batch), scores(one.method, batch))
        assert torch.equal(method.exported()["prompt.table"], exported["prompt.table"])
    assert one.method.unfolded(exported) is None


def test_layers_start_as_torchs(tiny, data_dir):
    torch.manual_seed(3)
    method = ResidualPrompt(tiny("bert"), sst2(data_dir), length=P, hidden=HIDDEN)
    down, _, up, norm = method.prompt.mlp[0]
    assert float(down.weight.detach().abs().max()) <= down.in_features**-0.5
    assert float(up.weight.detach().abs().max()) <= HIDDEN**-0.5
    assert norm.eps == 1e-5
    assert torch.equal(norm.weight, torch.ones(32)) and torch.equal(norm.bias, torch.zeros(32))


def test_a_hidden_layer_has_a_width(tiny, data_dir):
    with pytest.raises(UserError, match=r"method.hidden is 0; use 1 or more"):
        ResidualPrompt(tiny("bert"), sst2(data_dir), length=P, hidden=0)
