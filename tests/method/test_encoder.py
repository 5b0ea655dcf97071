"""The prompt encoder: the papers' sizes, what couples its rows, and PEFT's on equal weights."""

import pytest
import torch

from ptrun.prompt import PromptEncoder
from tests.tiers import package


@pytest.mark.parametrize(("kind", "coupled"), [("lstm", True), ("mlp", False), ("plain", False)])
def test_an_lstm_couples_the_rows_and_nothing_else_does(kind, coupled):
    torch.manual_seed(0)
    encoder = PromptEncoder(5, 8, kind)
    encoder()[1].sum().backward()
    moved = encoder.table.grad.abs().sum(dim=1) > 0
    assert moved[1] and moved[[0, 2, 3, 4]].tolist() == [coupled] * 4


def test_vectors_equal_those_of_peft_on_equal_weights():
    """PEFT's LSTM form; its MLP has three layers and its `full` inner width is another."""
    package("peft")
    import peft

    config = peft.PromptEncoderConfig(
        num_virtual_tokens=5,
        token_dim=12,
        encoder_hidden_size=6,
        encoder_num_layers=2,
        encoder_dropout=0.0,
        encoder_reparameterization_type="LSTM",
        num_transformer_submodules=1,
    )
    theirs = peft.PromptEncoder(config).eval()
    ours = copied(PromptEncoder(5, 12), theirs)
    torch.testing.assert_close(ours(), theirs(torch.arange(5)[None])[0], atol=1e-5, rtol=0)


def copied(ours, theirs):
    """Return our encoder with the weights of PEFT's."""
    ours.table.data.copy_(theirs.embedding.weight)
    ours.lstm.load_state_dict(theirs.lstm_head.state_dict())
    ours.mlp.load_state_dict(theirs.mlp_head.state_dict())
    return ours
