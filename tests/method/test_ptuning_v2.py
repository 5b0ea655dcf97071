"""Parameter counts of P-tuning v2 against the paper, by formula and by counting; its errors."""

import pytest
import torch

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.method.prompt_tuning import PromptTuning
from ptrun.method.ptuning_v2 import PTuningV2
from ptrun.prompt.prefix import DeepPrefix, prefix_parameters
from tests.training import sst2


def published(name):
    node = compose_run([f"backbone={name}"]).config["backbone"]
    return PretrainedBackbone(**{k: v for k, v in node.items() if k != "_target_"})


@pytest.mark.parametrize(
    ("name", "length", "layers", "embedding", "mlp"),
    [
        ("bert_base_cased", 100, 12, 1_843_200, 9_926_144),
        ("bert_large_cased", 100, 24, 4_915_200, 25_842_176),
        ("roberta_large", 100, 24, 4_915_200, 25_842_176),
    ],
)
def test_prefix_parameters_are_the_papers(data_dir, name, length, layers, embedding, mlp):
    backbone, task = published(name), sst2(data_dir)
    width = backbone.shape.hidden_size
    assert prefix_parameters(length, layers, width, "embedding") == embedding
    assert prefix_parameters(length, layers, width, "mlp") == mlp
    for kind, expected in (("embedding", embedding), ("mlp", mlp)):
        with torch.device("meta"):
            method = PTuningV2(backbone, task, length=length, reparameterization=kind)
        counted = method.learned_parameters()
        assert counted["prompt"] == expected and counted["backbone"] == 0
        assert counted["head"] == 2 * (width + 1)


def test_the_binary_task_on_bert_large_learns_4917250_and_prompt_tuning_102400(data_dir):
    backbone, task = published("bert_large_cased"), sst2(data_dir)
    deep = PTuningV2(backbone, task, length=100).learned_parameters()
    assert deep == {"prompt": 4_915_200, "head": 2_050, "backbone": 0, "total": 4_917_250}
    soft = PromptTuning(backbone, task, length=100).learned_parameters()
    assert soft["prompt"] == 102_400


def test_a_prefix_starts_with_standard_deviation_002():
    torch.manual_seed(0)
    assert float(DeepPrefix(50, 4, 4, 32).table.detach().std()) == pytest.approx(0.02, rel=0.02)


def test_a_folded_prefix_equals_what_its_mlp_made():
    torch.manual_seed(0)
    made = DeepPrefix(5, 3, 2, 8, kind="mlp", hidden=12)
    values = made().detach()
    folded = DeepPrefix(5, 3, 2, 8)
    folded.fold(values)
    assert torch.equal(folded(), values)


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


def test_without_shifted_positions_a_prefix_takes_no_room(tiny, data_dir):
    assert PTuningV2(tiny(), sst2(data_dir), length=60, shift_positions=False).room() == 64
