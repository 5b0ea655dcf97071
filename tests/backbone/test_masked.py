"""The encoder family against a hand-written reference; poolers, checksums and shared layers."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from ptrun.backbone.base import Prefix, checksum
from tests.backbone.inputs import LENGTHS, text
from tests.backbone.reference import encode

KINDS = ("bert", "roberta", "electra")


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


def test_an_untrained_pooler_is_drawn_by_the_seed(tiny):
    def drawn(kind, seed):
        backbone = tiny(kind)
        backbone.pooler_seed = seed
        backbone.load()
        assert kind == "bert" or not any(name.startswith("pooler") for name in backbone.body())
        return backbone.model.pooler.weight

    one, same, other = (drawn("roberta", seed) for seed in (1, 1, 2))
    assert (
        torch.equal(one, same)
        and abs(float(torch.corrcoef(torch.stack([one, other]).flatten(1))[0, 1])) < 0.2
    )
    assert float(one.std()) == pytest.approx(0.02, rel=0.1)
    assert torch.equal(drawn("bert", 1), drawn("bert", 2))


def test_the_checksum_notices_one_changed_bit(tiny):
    backbone = tiny()
    before = checksum(backbone.model)
    weight = backbone.model.base_model.encoder.layer[1].output.dense.weight
    weight.data.view(torch.int32)[0, 0] ^= 1
    assert checksum(backbone.model) != before


@pytest.mark.parametrize("start", [0, 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool])
def test_the_checksum_notices_a_bit_anywhere_in_a_part_of_a_tensor(start, dtype):
    part = torch.zeros(9, dtype=dtype)[start:8]
    model = nn.ParameterList([nn.Parameter(part, requires_grad=False)])
    before = checksum(model)
    for place in range(len(part)):
        part[place] = True
        assert checksum(model) != before
        part[place] = False
    assert checksum(model) == before


def test_the_checksum_copies_no_weight():
    model = nn.Linear(64, 64)
    with torch.profiler.profile(profile_memory=True) as seen:
        checksum(model)
    largest = max(own.self_cpu_memory_usage / own.count for own in seen.key_averages())
    assert largest <= 64, "bytes of an operator: a scalar takes 8"


def test_a_shared_layer_is_counted_and_tuned_once(tiny):
    backbone = tiny("albert")
    names = [n for n in backbone.body() if "albert_layer_groups" in n]
    assert names and all("albert_layer_groups.0." in n for n in names)
    calls = backbone.model.albert.encoder.albert_layer_groups
    weights = [c.albert_layers[0].attention.query.weight for c in calls]
    assert len(calls) == 3 and all(w is weights[0] for w in weights)
