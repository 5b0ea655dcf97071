"""Activation checkpointing, proved: the same losses and gradients, and less kept for the backward.

Two members share each pass and dropout is on. The library would empty `past_key_values` in silence
there; our prefixes, edits and dropout keys are put back for the recomputation.
"""

from functools import partial

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

from ptrun.hardware.torch_engine import TorchEngine
from ptrun.method.adapter import Adapter
from ptrun.method.idpg import IDPG
from ptrun.method.prompt_tuning import PromptTuning
from ptrun.method.ptuning_v2 import PTuningV2
from tests.small_runs import member, sst2
from tests.tiers import tiered

KINDS = ("bert", "roberta", "electra", "albert", "deberta", "deberta-v2", "gpt2", "llama", "t5")
METHODS = {
    "ptuning_v2": partial(PTuningV2, length=3, dropout=0.2),
    "prompt_tuning": partial(PromptTuning, length=3),
    "adapter": partial(Adapter, hidden=4),
    "idpg": partial(IDPG, length=3, hidden=8, order=4),
}
CELLS = [(kind, "ptuning_v2") for kind in KINDS]
CELLS += [(kind, "prompt_tuning") for kind in ("bert", "gpt2", "t5")]
CELLS += [(kind, "adapter") for kind in ("bert", "albert", "deberta-v2", "gpt2", "llama", "t5")]
CELLS += [(kind, "idpg") for kind in ("bert", "albert")]


class Kept:
    """Counts the bytes of distinct tensors that a pass keeps for its backward, weights aside."""

    def __init__(self, backbone):
        self.weights = {p.untyped_storage().data_ptr() for p in backbone.model.parameters()}
        self.sizes = {}

    def pack(self, tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self.weights:
            self.sizes[storage.data_ptr()] = (storage.nbytes(), tensor)  # alive, so not reused
        return tensor

    @property
    def nbytes(self):
        return sum(size for size, _ in self.sizes.values())


def step(backbone, make, data_dir, *, checkpointing):
    """Return the losses and gradients of two members' step, and what its forward kept."""
    own = [member(make, backbone, sst2(data_dir), seed, batch_size=6) for seed in (1, 2)]
    for one in own:
        for parameter in one.learned.values():
            torch.nn.init.normal_(parameter, std=0.2)  # so that gradients reach everything
    fit = TorchEngine(
        backbone, device="cpu", precision="fp32", token_budget=1000, checkpointing=checkpointing
    )
    fit.place([one.method for one in own])
    for one in own:
        fit._prepare([one.method], [one.reads()], training=True)
    kept, forward = Kept(backbone), backbone.forward

    def counted(given):
        assert given.keys is not None
        with saved_tensors_hooks(kept.pack, lambda tensor: tensor):
            return forward(given)

    backbone.forward = counted
    losses, _ = fit._accumulate(own)
    gradients = {f"{i}.{n}": p.grad for i, one in enumerate(own) for n, p in one.learned.items()}
    return losses, gradients, kept.nbytes


@pytest.mark.parametrize(("kind", "name"), tiered(CELLS, lambda kind, name: kind in ("bert", "t5")))
def test_it_changes_no_loss_and_no_gradient_and_keeps_less(tiny, data_dir, kind, name):
    make = METHODS[name]
    if (kind, name) == ("t5", "ptuning_v2"):
        make = partial(make, stacks=["encoder", "decoder", "cross"])
    torch.manual_seed(0)
    losses, gradients, whole = step(tiny(kind), make, data_dir, checkpointing=False)
    torch.manual_seed(0)
    again, replayed, few = step(tiny(kind), make, data_dir, checkpointing=True)
    assert losses == again
    for key, gradient in gradients.items():
        assert (gradient is None) == (replayed[key] is None)
        if gradient is not None:
            assert gradient.abs().sum() > 0, key
            torch.testing.assert_close(gradient, replayed[key], atol=1e-7, rtol=0, msg=key)
    assert few < whole / 2
