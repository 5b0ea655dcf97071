"""PEFT's layers go into a backbone and out again, and a rejected one leaves no trace."""

import pytest
import torch
from peft import LoraConfig
from torch import nn

from ptrun.backbone.base import checksum
from ptrun.errors import UserError
from ptrun.method.peft import adopt, detach, peft_config, tuned_by


def test_the_layers_use_the_owned_tensors_which_are_not_the_backbones(tiny):
    backbone = tiny()
    bare, size = checksum(backbone.model), backbone.size()
    tuner = tuned_by(backbone, LoraConfig(r=2, target_modules=["query"]), 0)
    assert list(tuner.layers) == [f"bert.encoder.layer.{i}.attention.self.query" for i in range(3)]
    owned = {name: nn.Parameter(torch.ones_like(p)) for name, p in tuner.learned.items()}
    adopt(tuner, owned, backbone)
    layer = next(iter(tuner.layers.values()))
    assert layer.lora_A["default"].weight is owned[next(n for n in owned if "lora_A" in n)]
    assert checksum(backbone.model) == bare and backbone.size() == size
    detach(backbone.model)
    assert not any(hasattr(module, "base_layer") for module in backbone.model.modules())


def test_the_seed_draws_and_the_callers_random_state_stays(tiny):
    backbone, config = tiny(), LoraConfig(r=2, target_modules=["query"])
    state = torch.get_rng_state()
    drawn = [
        [p.detach().clone() for p in tuned_by(backbone, config, seed).learned.values()]
        for seed in (0, 0, 1)
    ]
    assert torch.equal(torch.get_rng_state(), state)
    same = [all(map(torch.equal, drawn[0], other)) for other in drawn]
    assert same == [True, True, False]


def test_a_rejected_configuration_leaves_the_backbone_bare(tiny):
    backbone = tiny()
    names = [name for name, _ in backbone.model.named_modules()]
    config = peft_config({"peft_type": "LORA", "target_modules": ["q_proj"]})
    with pytest.raises(UserError):
        tuned_by(backbone, config, 0)
    assert names == [name for name, _ in backbone.model.named_modules()]


def test_a_configuration_that_trains_the_backbone_leaves_it_frozen(tiny):
    backbone = tiny()
    names = [name for name, _ in backbone.model.named_modules()]
    with pytest.raises(UserError, match="would change the backbone's own"):
        tuned_by(backbone, LoraConfig(target_modules=["query"], bias="all"), 0)
    assert names == [name for name, _ in backbone.model.named_modules()]
    assert not any(p.requires_grad for p in backbone.model.parameters())
