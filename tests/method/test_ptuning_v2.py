"""Parameter counts of P-tuning v2 against the paper, by formula and by counting; its errors."""

import pytest

from ptrun.backbone.injection import KeyedDropout
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from ptrun.method.ptuning_v2 import PTuningV2
from tests.small_runs import conll03, sst2


@pytest.mark.parametrize(
    ("kind", "data", "values", "message"),
    [
        ("bert", sst2, {"stacks": ["encoder"]}, r"tiny_bert0 \(masked\) has one stack"),
        ("gpt2", sst2, {"stacks": ["decoder"]}, r"tiny_gpt20 \(causal\) has one stack"),
        ("t5", sst2, {"stacks": []}, "name one or more of encoder, decoder, cross"),
        ("t5", sst2, {"stacks": ["cross", "cross"]}, "name one or more"),
        ("t5", conll03, {"stacks": ["encoder", "decoder"]}, "name one or more of encoder, which"),
        ("t5", sst2, {"layers": [1, 3]}, "first <= last <= 2, the layers of the decoder"),
    ],
)
def test_stacks_that_are_not_there_or_not_read_are_refused(
    tiny, data_dir, kind, data, values, message
):
    with pytest.raises(UserError, match=message):
        PTuningV2(tiny(kind), data(data_dir), length=2, **values)


def test_a_prefix_takes_no_room_from_an_encoder_decoder(tiny, data_dir):
    made = PTuningV2(tiny("t5"), sst2(data_dir), length=20)
    assert made.room() == made.backbone.shape.positions


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"length": 60},
            "method.length is 60, but tiny_bert0 has 64 positions; use method.length=56",
        ),
        ({"length": -1}, "method.length is -1"),
        ({"length": 2, "layers": [2, 4]}, r"method.layers is \[2, 4\]; give \[first,last\]"),
        ({"length": 2, "layers": [3, 2]}, "1 <= first <= last <= 3"),
        ({"length": 2, "dropout": 1.0}, "method.dropout is 1.0"),
    ],
)
def test_what_cannot_be_is_refused(tiny, data_dir, values, message):
    with pytest.raises(UserError, match=message):
        PTuningV2(tiny(), sst2(data_dir), **values)


def test_the_dropout_of_a_script_is_that_of_hidden_states_prefix_and_head(tiny_folder, data_dir):
    backbone = PretrainedBackbone(name="x", path=str(tiny_folder("bert")), dropout=0.2)
    method = PTuningV2(backbone, sst2(data_dir), length=2)
    sites = [m for m in backbone.model.modules() if isinstance(m, KeyedDropout)]
    hidden = [module.p for module in sites if module.p != 0.1]  # attention keeps its own
    assert len(hidden) == 1 + 2 * backbone.shape.layers and set(hidden) == {0.2}
    assert method.dropout == method.readout.dropout == 0.2


def test_without_shifted_positions_a_prefix_takes_no_room(tiny, data_dir):
    assert PTuningV2(tiny(), sst2(data_dir), length=60, shift_positions=False).room() == 64
