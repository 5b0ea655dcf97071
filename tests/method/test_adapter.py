"""Adapters against the library's own model with hooks; counts, sites and company."""

import pytest
import torch
import transformers
from torch.nn.functional import gelu, linear

from ptrun.method.adapter import Adapter, dense
from ptrun.method.fine_tuning import FineTuning
from tests.method.test_every_kind import joined_members_are_alone, rows_are_alone
from tests.readings import reading
from tests.small_runs import conll03, scores, sst2, train_batch

KINDS = ["bert", "roberta", "electra", "albert", "deberta", "deberta-v2", "gpt2", "llama", "t5"]


def made(backbone, data_dir, seed=3, task=sst2, read_out=None, **own):
    torch.manual_seed(seed)
    method = Adapter(backbone, task(data_dir), read_out, **{"hidden": 8, **own})
    for parameter in method.adapters.parameters():
        parameter.data.normal_(std=0.3)
    return method


def assert_same(one, other, atol=1e-4):
    torch.testing.assert_close(one, other, atol=atol, rtol=1e-5)


@pytest.mark.parametrize("layout", ["houlsby", "pfeiffer"])
@pytest.mark.parametrize("maps", ["dense", "phm"])
@torch.no_grad()
def test_it_is_the_librarys_model_with_maps_added(tiny, tiny_folder, data_dir, layout, maps):
    bare = reading("head", pooler="none")
    method = made(tiny("bert"), data_dir, layout=layout, maps=maps, read_out=bare)
    model = transformers.BertModel.from_pretrained(tiny_folder("bert")).eval()

    def hook(own):
        def weight(m):
            return m.weight() if maps == "phm" else m.weight.T

        def edit(_module, _arguments, h):
            hidden = gelu(h @ weight(own.down) + own.down.bias)
            return h + hidden @ weight(own.up) + own.up.bias

        return edit

    for index, layer in enumerate(model.encoder.layer):
        places = {"attention": layer.attention.output.dense, "ffn": layer.output.dense}
        for kind in ("attention", "ffn") if layout == "houlsby" else ("ffn",):
            places[kind].register_forward_hook(hook(method.adapters[f"encoder_{kind}_{index}"]))
    batch = train_batch(method)
    whole = model(batch.ids, attention_mask=batch.mask.long()).last_hidden_state[:, 0]
    assert_same(scores(method, batch), linear(whole, *method.readout.linear.parameters()))


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_each_adapter_adds_to_the_bare_backbone_row_by_row(tiny, data_dir, kind):
    """Each of its sites is where a hook is; a decoder that reads one token too."""
    backbone = tiny(kind)
    method, bare = made(backbone, data_dir), FineTuning(backbone, sst2(data_dir))
    bare.readout.load_state_dict(method.readout.state_dict())
    rows_are_alone(method)
    batch = train_batch(method)
    before = scores(method, batch)
    assert not torch.allclose(before, scores(bare, batch), atol=1e-3)
    for name, own in method.adapters.items():
        kept = own.up.bias.clone()
        own.up.bias.normal_()
        assert not torch.allclose(scores(method, batch), before, atol=1e-4), name
        own.up.bias.copy_(kept)
    for own in method.adapters.values():
        own.up.weight.zero_()
        own.up.bias.zero_()
    torch.testing.assert_close(scores(method, batch), scores(bare, batch), atol=0, rtol=0)


@pytest.mark.parametrize("kind", ["bert", "gpt2", "t5"])
@torch.no_grad()
def test_members_in_one_pass_answer_as_each_alone(tiny, data_dir, kind):
    backbone = tiny(kind)
    members = [
        made(backbone, data_dir),
        made(backbone, data_dir, seed=5, layout="pfeiffer", maps="phm"),
        FineTuning(backbone, sst2(data_dir)),
    ]
    joined_members_are_alone(members, atol=1e-4)


def test_a_decoder_that_is_not_read_has_none(tiny, data_dir):
    read_too, unread = (made(tiny("t5"), data_dir, task=task) for task in (sst2, conll03))
    assert len(read_too.adapters) == 2 * (3 + 2) and len(unread.adapters) == 2 * 3


# One adapter.


def test_a_dense_one_begins_as_nothing_and_keeps_the_precision():
    x = torch.randn(2, 5, 8)
    torch.testing.assert_close(dense(8, 4)(x, lambda y: y), x, atol=1e-9, rtol=1e-6)
    assert dense(8, 4)(x.bfloat16(), lambda y: y).dtype is torch.bfloat16
