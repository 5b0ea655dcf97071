"""The encoder family against transformers, a hand-written reference, and its own invariants.

Guards against silent failures: a prefix that does nothing, positions off by one, an edit in the
wrong layer, a language-model head run over every position, weights that are not the checkpoint's.
"""

import json
from dataclasses import replace

import pytest
import torch
import transformers

from ptrun.backbone.base import BackboneInput, Positions, Prefix, checksum
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from tests.backbone.reference import encode

KINDS = ("bert", "roberta", "electra")
LENGTHS = (9, 5, 7)
LIBRARY = {
    "bert": transformers.BertForPreTraining,
    "roberta": transformers.RobertaForMaskedLM,
    "electra": transformers.ElectraForPreTraining,
}


def every(mask):
    rows, columns = mask.nonzero(as_tuple=True)
    return Positions(rows, columns)


def text(backbone, side="right"):
    """Return random tokens, padded on a side, all real positions asked for."""
    generator = torch.Generator().manual_seed(3)
    lengths, width = LENGTHS, max(LENGTHS)
    ids = torch.randint(5, 60, (len(lengths), width), generator=generator)
    mask = torch.zeros(len(lengths), width, dtype=torch.bool)
    for row, length in enumerate(lengths):
        mask[row, slice(0, length) if side == "right" else slice(width - length, width)] = True
        ids[row] = ids[row].roll(0 if side == "right" else width - length)
    pad = backbone.config.get("pad_token_id", 0) or 0
    return BackboneInput(ids=ids.masked_fill(~mask, pad), mask=mask, hidden_at=every(mask))


def prefix_of(backbone, length=4):
    """Return a random prefix as the model takes it, and as the reference does."""
    shape = backbone.shape
    generator = torch.Generator().manual_seed(5)
    values = torch.randn(shape.layers, 2, length, shape.hidden_size, generator=generator)
    split = values.view(shape.layers, 2, length, shape.heads, shape.head_size).transpose(2, 3)
    pairs = [
        (k.expand(len(LENGTHS), -1, -1, -1), v.expand(len(LENGTHS), -1, -1, -1)) for k, v in split
    ]
    return tuple(Prefix(k, v) for k, v in pairs), values


@pytest.mark.parametrize("kind", KINDS)
def test_outputs_at_asked_positions_equal_the_library(tiny, tiny_folder, kind):
    backbone = tiny(kind)
    given = text(backbone)
    output = backbone.forward(replace(given, logits_at=given.hidden_at))
    model = LIBRARY[kind].from_pretrained(tiny_folder(kind)).eval()
    library = model(input_ids=given.ids, attention_mask=given.mask, output_hidden_states=True)
    logits = library.prediction_logits if kind == "bert" else library.logits
    logits = logits[given.mask].reshape(len(output.logits), -1)
    torch.testing.assert_close(output.logits, logits, atol=1e-5, rtol=0)
    torch.testing.assert_close(
        output.hidden, library.hidden_states[-1][given.mask], atol=1e-5, rtol=0
    )


@pytest.mark.parametrize("shift", [False, True], ids=["unshifted", "shifted"])
@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_deep_prompt_equals_the_hand_written_reference(tiny, kind, side, shift):
    backbone = tiny(kind)
    given = text(backbone, side)
    prefixes, values = prefix_of(backbone)
    offset = 4 if shift else 0
    moved = torch.full((len(LENGTHS),), offset)
    output = backbone.forward(replace(given, prefixes=prefixes, shift=moved))
    start = offset + (2 if kind == "roberta" else 0)
    expected = encode(backbone.model.base_model, given.ids, given.mask, None, values, start)
    rows = [expected[row, :length] for row, length in enumerate(LENGTHS)]
    torch.testing.assert_close(output.hidden, torch.cat(rows), atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_activation_checkpointing_changes_neither_loss_nor_prefix_gradient(tiny, kind):
    gradients = []
    for active in (False, True):
        backbone = tiny(kind)
        backbone.checkpoint(active)
        prefixes, _ = prefix_of(backbone)
        leaves = [p.key.clone().requires_grad_(True) for p in prefixes]
        injected = tuple(Prefix(leaf, p.value) for leaf, p in zip(leaves, prefixes, strict=True))
        edits = {("attention", 1): lambda h: h * 1.5}
        keys = torch.arange(len(LENGTHS))
        given = replace(text(backbone), prefixes=injected, edits=edits, keys=keys)
        loss = backbone.forward(given).hidden.square().sum()
        loss.backward()
        gradients.append([loss.detach(), *(leaf.grad for leaf in leaves)])
    assert all(grad.abs().sum() > 0 for grad in gradients[1])
    for plain, replayed in zip(*gradients, strict=True):
        torch.testing.assert_close(plain, replayed, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_prefix_is_the_bare_backbone_and_a_zero_prefix_is_not(tiny, kind):
    backbone = tiny(kind)
    given = text(backbone)
    bare = backbone.forward(given).hidden
    empty, _ = prefix_of(backbone, length=0)
    zero = tuple(Prefix(0 * p.key, 0 * p.value) for p in prefix_of(backbone)[0])
    unseen = tuple(
        replace(p, mask=torch.zeros(len(LENGTHS), 4, dtype=torch.bool))
        for p in prefix_of(backbone)[0]
    )
    torch.testing.assert_close(backbone.forward(replace(given, prefixes=empty)).hidden, bare)
    torch.testing.assert_close(
        backbone.forward(replace(given, prefixes=unseen)).hidden, bare, atol=1e-5, rtol=0
    )
    assert (backbone.forward(replace(given, prefixes=zero)).hidden - bare).abs().max() > 1e-3


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_a_prefix_in_one_layer_changes_that_layer_and_those_above_only(tiny, layer):
    backbone = tiny()
    given = text(backbone)
    one = tuple(p if i == layer else None for i, p in enumerate(prefix_of(backbone)[0]))
    bare, changed = (_layers(backbone, replace(given, prefixes=p)) for p in (None, one))
    same = [torch.equal(a, b) for a, b in zip(bare, changed, strict=True)]
    assert same == [index < layer for index in range(3)]


@pytest.mark.parametrize("site", ["layer", "attention", "ffn"])
def test_an_edit_acts_in_its_layer_on_its_row_only(tiny, site):
    backbone = tiny()
    given = text(backbone)

    def edit(hidden):
        return torch.cat([hidden[:1], hidden[1:2] + 1, hidden[2:]])

    bare = _layers(backbone, given)
    changed = _layers(backbone, replace(given, edits={(site, 1): edit}))
    assert torch.equal(bare[0], changed[0])
    for a, b in zip(bare[1:], changed[1:], strict=True):
        assert torch.equal(a[[0, 2]], b[[0, 2]]) and not torch.equal(a[1], b[1])


@pytest.mark.parametrize("kind", KINDS)
def test_word_embeddings_as_input_equal_token_ids(tiny, kind):
    backbone = tiny(kind)
    given = text(backbone)
    embedded = replace(given, ids=None, embeddings=backbone.embed(given.ids))
    torch.testing.assert_close(
        backbone.forward(embedded).hidden, backbone.forward(given).hidden, atol=1e-6, rtol=0
    )


@pytest.mark.parametrize("kind", KINDS)
def test_padding_side_order_and_company_change_nothing(tiny, kind):
    backbone = tiny(kind)
    given = text(backbone)
    together = backbone.forward(given).hidden.split(LENGTHS)
    left = backbone.forward(text(backbone, "left")).hidden.split(LENGTHS)
    for row, length in enumerate(LENGTHS):
        mask = given.mask[row : row + 1, :length]
        alone = BackboneInput(
            ids=given.ids[row : row + 1, :length], mask=mask, hidden_at=every(mask)
        )
        expected = backbone.forward(alone).hidden
        torch.testing.assert_close(together[row], expected, atol=1e-5, rtol=0)
        torch.testing.assert_close(left[row], expected, atol=1e-5, rtol=0)


def test_the_checkpoint_pooler_is_used_where_there_is_one(tiny, tiny_folder):
    backbone = tiny("bert")
    given = text(backbone)
    first = Positions(torch.arange(3), torch.zeros(3, dtype=torch.long))
    model = transformers.BertModel.from_pretrained(tiny_folder("bert")).eval()
    expected = model(input_ids=given.ids, attention_mask=given.mask).pooler_output
    torch.testing.assert_close(
        backbone.forward(replace(given, pooled_at=first)).pooled, expected, atol=1e-5, rtol=0
    )
    assert backbone.has_pooler and not tiny("roberta").has_pooler


def test_a_backbone_without_a_pooler_gets_the_same_untrained_one_every_time(tiny):
    first, second = tiny("roberta"), tiny("roberta")
    assert torch.equal(first.model.pooler.weight, second.model.pooler.weight)
    assert not any(name.startswith("pooler") for name in first.body())


def test_loading_freezes_everything_and_dropout_is_off_without_keys(tiny):
    backbone = tiny()
    assert not any(p.requires_grad for p in backbone.model.parameters())
    given = text(backbone)
    assert torch.equal(backbone.forward(given).hidden, backbone.forward(given).hidden)
    keyed = replace(given, keys=torch.arange(3))
    assert not torch.equal(backbone.forward(keyed).hidden, backbone.forward(given).hidden)
    assert torch.equal(backbone.forward(keyed).hidden, backbone.forward(keyed).hidden)


def test_the_checksum_notices_one_changed_bit(tiny):
    backbone = tiny()
    before = checksum(backbone.model)
    weight = backbone.model.base_model.encoder.layer[1].output.dense.weight
    weight.data.view(torch.int32)[0, 0] ^= 1
    assert checksum(backbone.model) != before


def _layers(backbone, given):
    """Return the output of every layer for one pass."""
    outputs = []
    layers = backbone.model.base_model.encoder.layer
    handles = [m.register_forward_hook(lambda _m, _a, out: outputs.append(out)) for m in layers]
    backbone.forward(given)
    for handle in handles:
        handle.remove()
    return outputs
