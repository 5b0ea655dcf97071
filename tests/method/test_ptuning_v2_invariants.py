"""P-tuning v2 on every family: when a prefix counts, what it learns, and what must not matter.

The reference for all of them is the bare backbone with the same head (`length=0`).
"""

from dataclasses import replace

import pytest
import torch

from ptrun.backbone.base import Prefix
from ptrun.backbone.injection import KeyedDropout
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.method.ptuning_v2 import PTuningV2
from ptrun.prompt import DeepPrefix
from tests.small_runs import engine, member, sst2
from tests.tiers import tiered

KINDS = ["bert", "roberta", "electra", "albert", "deberta", "deberta-v2", "gpt2", "llama", "t5"]
RELATIVE = ["deberta", "t5"]  # Llama's prefix keys are not turned, so its numbers count
STACKS = ["encoder", "decoder", "cross"]
FIRST = ["bert", "deberta", "gpt2", "t5"]  # a kind of each family
kinds = pytest.mark.parametrize("kind", tiered(KINDS, lambda kind: kind in FIRST))


def method(backbone, task, seed=0, **keys):
    torch.manual_seed(seed)
    made = PTuningV2(backbone, task, **{"length": 4, **keys})
    torch.manual_seed(seed + 1)  # the head's numbers must not depend on the prefix's
    torch.nn.init.normal_(made.readout.linear.weight, std=0.2)
    return made


def batch_of(made, task, keys=None):
    examples = task.load("train")
    keyed = None if keys is None else torch.arange(len(examples)) + keys
    return engine(made.backbone)._collate(made.encode(examples), keyed)


def scores(made, batch, given=None):
    given = made.inputs(batch) if given is None else given
    return made.readout.scores(made.backbone.forward(given), batch)


def stacks_of(kind):
    return {"stacks": STACKS} if kind == "t5" else {}


def prefixes(given):
    """Return every prefix of an input, whichever stack it is for."""
    decoder = given.decoder
    every = [given.prefixes, decoder and decoder.prefixes, decoder and decoder.cross]
    return [prefix for own in every for prefix in own or () if prefix is not None]


def masked(own):
    hide = own and [p and Prefix(p.key, p.value, torch.zeros(p.key.shape[::2]).bool()) for p in own]
    return hide and tuple(hide)


@kinds
def test_no_vectors_are_the_bare_backbone(tiny, data_dir, kind):
    backbone, task = tiny(kind), sst2(data_dir)
    empty = method(backbone, task, length=0)
    batch = batch_of(empty, task)
    given = empty.inputs(batch)
    assert prefixes(given) == [] and empty.learned_parameters()["prompt"] == 0
    bare = super(PTuningV2, empty).inputs(batch)
    assert torch.equal(scores(empty, batch), scores(empty, batch, bare))


@kinds
def test_a_zero_prefix_takes_softmax_mass_and_a_hidden_one_takes_none(tiny, data_dir, kind):
    backbone, task = tiny(kind), sst2(data_dir)
    made = method(backbone, task, shift_positions=False, **stacks_of(kind))
    torch.nn.init.zeros_(made.prompt.table)
    batch = batch_of(made, task)
    bare = scores(made, batch, super(PTuningV2, made).inputs(batch))
    assert float((scores(made, batch) - bare).detach().abs().max()) > 1e-3
    given, decoder = made.inputs(batch), made.inputs(batch).decoder
    if decoder is not None:
        own = {"prefixes": masked(decoder.prefixes), "cross": masked(decoder.cross)}
        decoder = replace(decoder, **own)
    hidden = replace(given, prefixes=masked(given.prefixes), decoder=decoder)
    torch.testing.assert_close(scores(made, batch, hidden), bare, atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_shifted_positions_change_the_scores_of_models_that_number_them(tiny, data_dir, kind):
    backbone, task = tiny(kind), sst2(data_dir)
    shifted, plain = (method(backbone, task, shift_positions=s) for s in (True, False))
    found = scores(shifted, batch_of(shifted, task)) - scores(plain, batch_of(plain, task))
    moved = float(found.detach().abs().max())
    assert moved < 1e-5 if kind in RELATIVE else moved > 1e-3


@kinds
def test_every_layer_of_the_interval_learns_and_no_other_is_reached(tiny, data_dir, kind):
    backbone, task = tiny(kind), sst2(data_dir)
    whole = method(backbone, task)
    batch = batch_of(whole, task)
    parts = {layers: method(backbone, task, layers=list(layers)) for layers in [(1, 1), (2, 2)]}
    for (first, _), own in parts.items():
        given = own.inputs(batch)
        reached = [i for i, prefix in enumerate(given.prefixes, start=1) if prefix is not None]
        assert reached == [first]
        own.loss(backbone.forward(given), batch).backward()
        grads = own.prompt.table.grad.unflatten(1, own.prompt.form[1:])
        assert own.prompt.form[1] == 2 * len(own.places)
        assert all(float(grads[:, i].abs().sum()) > 0 for i in range(1, len(grads[0]), 2))  # values
    bottom, top = (own.learned_parameters() for own in parts.values())
    assert bottom == top


@kinds
def test_an_mlp_and_its_exported_table_answer_the_same(tiny, data_dir, kind):
    backbone, task = tiny(kind), sst2(data_dir)
    mlp = {"reparameterization": "mlp", "hidden": 8, **stacks_of(kind)}
    made, table = method(backbone, task, **mlp), method(backbone, task, seed=5, **stacks_of(kind))
    for parameter in made.prompt.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    batch = batch_of(made, task)
    exported = made.exported()
    assert not any("mlp" in name or "table" in name for name in exported)
    table.load_exported(exported)
    torch.testing.assert_close(scores(table, batch), scores(made, batch), atol=1e-6, rtol=0)


def test_tables_and_maps_start_with_standard_deviation_002_and_no_bias():
    torch.manual_seed(0)
    made = DeepPrefix(60, 4, 4, 32, kind="mlp", hidden=96)
    weights = {n: p.detach() for n, p in made.named_parameters()}
    for name, weight in weights.items():
        if name.endswith("bias"):
            assert not weight.any()
        else:
            assert float(weight.std()) == pytest.approx(0.02, rel=0.03), name


@kinds
def test_the_prefix_is_dropped_in_training_alone(tiny, data_dir, kind):
    backbone, task = tiny(kind), sst2(data_dir)
    made = method(backbone, task, dropout=0.5, **stacks_of(kind))
    one, other, still = (prefixes(made.inputs(batch_of(made, task, keys=k))) for k in (0, 99, None))
    again = prefixes(made.inputs(batch_of(made, task)))
    assert len(one) == len(made.places)
    for a, b, c, d in zip(one, other, still, again, strict=True):
        assert not torch.equal(a.key, b.key) and not torch.equal(a.value, b.value)
        assert 0.3 < float((a.key == 0).float().mean()) < 0.7
        assert torch.equal(c.key, d.key) and not (c.value == 0).any()


@pytest.mark.parametrize("stacks", [["encoder"], ["decoder"], ["cross"], STACKS], ids="-".join)
def test_each_stack_of_an_encoder_decoder_learns(tiny, data_dir, stacks):
    backbone, task = tiny("t5"), sst2(data_dir)
    start = method(backbone, task, stacks=stacks).prompt.table.detach().clone()
    one = member(lambda b, t: method(b, t, stacks=stacks), backbone, task, max_steps=2)
    fit = engine(backbone)
    fit.place([one.method])
    fit.fit([one])
    moved = (one.method.prompt.table != start).unflatten(1, one.method.prompt.form[1:])
    assert moved.any(dim=(0, 2, 3))[1::2].all()  # every layer's values


def test_a_prefix_takes_no_room_from_an_encoder_decoder(tiny, data_dir):
    made = PTuningV2(tiny("t5"), sst2(data_dir), length=20)
    assert made.room() == made.backbone.shape.positions


def test_the_dropout_of_a_script_is_that_of_hidden_states_prefix_and_head(tiny_folder, data_dir):
    backbone = PretrainedBackbone(name="x", path=str(tiny_folder("bert")), dropout=0.2)
    method = PTuningV2(backbone, sst2(data_dir), length=2)
    sites = [m for m in backbone.model.modules() if isinstance(m, KeyedDropout)]
    hidden = [module.p for module in sites if module.p != 0.1]  # attention keeps its own
    assert len(hidden) == 1 + 2 * backbone.shape.layers and set(hidden) == {0.2}
    assert method.dropout == method.readout.dropout == 0.2


def test_without_shifted_positions_a_prefix_takes_no_room(tiny, data_dir):
    assert PTuningV2(tiny(), sst2(data_dir), length=60, shift_positions=False).room() == 64
