"""Packed tokens give what padded rows give: outputs, gradients and dropout."""

from dataclasses import replace

import pytest
import torch

from ptrun.backbone import dropout, family
from ptrun.backbone.base import Positions
from ptrun.backbone.packing import EVERY, LOOK_BACK, in_rows, members_of, packing_of
from tests.backbone.inputs import DEVICE, passed
from tests.families import PaperBackbone

PACKED = ("bert", "roberta", "electra", "albert", "gpt2", "llama")


@pytest.mark.parametrize("edits", [None, {("layer", 1): lambda hidden: hidden * 1.5}])
@pytest.mark.parametrize("kind", PACKED)
def test_packed_tokens_give_what_padded_rows_give(tiny_folder, kind, edits):
    backbone = PaperBackbone(name=kind, path=str(tiny_folder(kind)))
    backbone.load()
    backbone.model.to(DEVICE)
    packed = passed(backbone, keyed=True, edits=edits)
    assert backbone.architecture.packed is not None
    backbone.architecture = replace(backbone.architecture, packed=None)
    rows = passed(backbone, keyed=True, edits=edits)
    for own, padded in zip(packed, rows, strict=True):
        assert torch.allclose(own, padded, rtol=1e-4, atol=1e-5 * float(padded.abs().max()))


def test_tokens_are_dropped_as_in_their_rows():
    keys, lengths = dropout.row_keys(1, 2, range(4)), [5, 2, 7, 2]
    mask = torch.arange(7) < torch.tensor(lengths)[:, None]
    packing = packing_of(mask, None, EVERY, price=0)
    rows = torch.randn(4, 7, 16)
    packed = dropout.Keyed(keys, 9, 0.3, rows=packing.rows, columns=packing.columns)
    tokens, whole = packed(packing.pack(rows)), dropout.drop(rows, keys, 9, 0.3)
    assert torch.equal(packing.unpack(tokens)[mask], whole[mask])


@pytest.mark.parametrize("price", [0, 2, 1000])
def test_EVERY_token_is_packed_once(price):
    mask = torch.zeros(5, 9, dtype=torch.bool)
    for row, (first, last) in enumerate([(0, 4), (2, 9), (0, 1), (0, 4), (3, 6)]):  # any side
        mask[row, first:last] = True
    packing = packing_of(mask, None, EVERY, price)
    ids = torch.arange(45).view(5, 9)
    kept = packing.pack(ids)[0].tolist()
    assert set(ids[mask].tolist()) <= set(kept) and len(set(kept)) == len(kept)
    at = Positions(torch.tensor([1, 4]), torch.tensor([8, 3]))
    assert packing.pack(ids)[0, packing.places([at])].tolist() == [17, 39]
    assert sum(block.tokens for block in packing.blocks) == len(kept)
    for block, seen in zip(packing.blocks, packing.by_block(mask), strict=True):
        seen = seen[:, : block.width]
        assert (
            bool(seen.all())
            if block.visible(EVERY) is None
            else torch.equal(block.visible(EVERY)[:, 0, 0], seen)
        )


@pytest.mark.parametrize("causal", [False, True])
def test_known_lengths_give_the_packing_of_the_mask(causal):
    lengths = [4, 9, 1, 4, 6]
    mask = torch.arange(9) < torch.tensor(lengths)[:, None]
    own, other = (packing_of(mask, n, LOOK_BACK if causal else EVERY, 2) for n in (lengths, None))
    for name in ("rows", "columns", "starts", "widths", "order"):
        assert torch.equal(getattr(own, name), getattr(other, name)), name
    assert own.tokens == other.tokens == tuple(own.widths.tolist())


def test_members_get_the_tokens_of_their_rows():
    lengths = [4, 9, 1, 4, 6]
    mask = torch.arange(9) < torch.tensor(lengths)[:, None]
    packing = packing_of(mask, lengths, EVERY, 2)
    counts = [sum(packing.tokens[:2]), sum(packing.tokens[2:])]
    members = members_of(packing, [2, 3], counts)
    assert [set(own.rows.tolist()) for own in members.tokens] == [{0, 1}, {2, 3, 4}]
    tokens = torch.randn(1, len(packing.rows), 3)
    assert torch.equal(members.joined(members.split(tokens)), tokens)


@pytest.mark.parametrize("edits", [None, {("layer", 1): lambda hidden: hidden * 1.5}])
@pytest.mark.parametrize("kind", PACKED)
def test_rows_in_their_order_give_what_blocks_give(tiny_folder, kind, edits, monkeypatch):
    """A GPU packs so; here attention reads the rows without its kernel."""
    backbone = PaperBackbone(name=kind, path=str(tiny_folder(kind)))
    backbone.load()
    blocks = passed(backbone, keyed=True, edits=edits)
    monkeypatch.setattr(
        family, "packing_of", lambda mask, lengths, reach, _: in_rows(mask, lengths, reach)
    )
    rows = passed(backbone, keyed=True, edits=edits)
    for own, other in zip(rows, blocks, strict=True):
        assert torch.allclose(own, other, rtol=1e-4, atol=1e-5 * float(other.abs().max()))
