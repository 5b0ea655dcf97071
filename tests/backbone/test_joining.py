"""Inputs of different members in one pass: each gets what it would have got alone."""

from dataclasses import replace

import pytest
import torch

from ptrun.backbone.attention import extend
from ptrun.backbone.base import DecoderInput, Positions, Prefix
from ptrun.backbone.joining import join, split
from tests.backbone.inputs import every, rows, text


def prefixes(backbone, layers, length, seed):
    generator = torch.Generator().manual_seed(seed)
    shape = backbone.shape
    size = (2, 3, shape.heads, length, shape.head_size)
    return tuple(Prefix(*torch.randn(size, generator=generator)) for _ in range(layers))


def member(backbone, seed):
    """Return an input with everything injected everywhere, of sizes that depend on the seed."""
    given, shape = text(backbone), backbone.shape
    ids, mask = rows((3, 2 + seed, 1), seed=seed)
    decoder = DecoderInput(
        mask=mask,
        ids=ids,
        prefixes=prefixes(backbone, shape.decoder_layers, 1 + seed, seed),
        cross=prefixes(backbone, shape.decoder_layers, 3 - seed, seed + 10),
        edits={("cross", 1): lambda h: h * (1 + seed)},
    )
    own = prefixes(backbone, shape.layers, 2 + seed, seed + 20)
    edits = {("ffn", seed): lambda h: h + 1}
    at = every(mask)
    return replace(given, decoder=decoder, prefixes=own, edits=edits, hidden_at=at, logits_at=at)


def test_encoder_decoder_members_keep_their_decoders_prefixes_and_edits(tiny):
    backbone = tiny("t5")
    parts = [member(backbone, seed) for seed in (0, 1, 2)]
    together = split(backbone.forward(join(parts)), parts)
    for part, own in zip(parts, together, strict=True):
        alone = backbone.forward(part)
        torch.testing.assert_close(own.logits, alone.logits, atol=1e-5, rtol=0)
        torch.testing.assert_close(own.hidden, alone.hidden, atol=1e-5, rtol=0)


def test_a_member_without_the_decoder_does_not_join_one_with_it(tiny):
    backbone = tiny("t5")
    alone = replace(
        text(backbone),
        decoder=None,
        logits_at=None,
        hidden_at=Positions(torch.zeros(1).long(), torch.zeros(1).long()),
    )
    with pytest.raises(AssertionError, match="members differ"):
        join([member(backbone, 0), alone])


def test_prefixes_of_several_lengths_and_a_mask_of_one_row():
    """Where no token is padded, the library makes one mask for all rows."""
    key = torch.randn(2, 3, 4, 8)
    seen = torch.tensor([[False, True], [True, True]])
    prefix = Prefix(torch.randn(2, 3, 2, 8), torch.randn(2, 3, 2, 8), seen)
    mask = torch.ones(1, 1, 4, 4, dtype=torch.bool).tril()
    whole = extend(mask, prefix, key)
    assert whole.shape == (2, 1, 4, 6)
    for row in range(2):
        assert torch.equal(whole[row, 0, :, 2:], mask[0, 0])
        assert whole[row, 0, :, :2].tolist() == [seen[row].tolist()] * 4
