"""What the optimizer is made with, against torch's own Adam."""

import pytest
import torch

from ptrun.config.compose import compose_run
from ptrun.config.schema import TrainConfig, train_config
from ptrun.errors import UserError
from ptrun.training import optim
from ptrun.training.optim import TorchStepper, check_train, make_optimizer

SIZES = {"head.weight": (2, 3), "head.bias": (3,), "scale": ()}
SIZES |= {"backbone.w": (2, 2), "backbone.norm": (2,)}


def moved(optimizer, weight):
    for step in range(1, 4):
        weight.grad = torch.tensor([[1.0, -2.0]]) * step
        optimizer.step()
    return weight.detach()


@pytest.mark.parametrize("own", [{}, {"betas": (0.9, 0.98), "eps": 1e-2}])
def test_a_step_is_torchs_with_the_same_betas_and_eps(own):
    mine, theirs, plain = (torch.nn.Parameter(torch.ones(1, 2)) for _ in range(3))
    made = make_optimizer(TrainConfig(lr=0.1, **own), {"prompt.w": mine})
    keys = {"lr": 0.1, "weight_decay": 0.0, **own}
    after = moved(made, mine)
    assert torch.equal(after, moved(torch.optim.AdamW([theirs], fused=True, **keys), theirs))
    unfused = moved(torch.optim.AdamW([plain], fused=False, **keys), plain)
    torch.testing.assert_close(after, unfused, atol=0, rtol=1e-6)


@pytest.mark.parametrize("every", [False, True])
def test_vectors_decay_only_if_asked(every):
    """A step without gradient is `w - lr * decay * w` where weights decay."""
    learned = {name: torch.nn.Parameter(torch.ones(size)) for name, size in SIZES.items()}
    train = TrainConfig(lr=0.1, weight_decay=0.5, decay_vectors=every, backbone_weight_decay=0.25)
    made = make_optimizer(train, learned)
    for weight in learned.values():
        weight.grad = torch.zeros_like(weight)
    made.step()
    kept = {name: float(weight.detach().mean()) for name, weight in learned.items()}
    wide = {"head.weight": 0.95, "backbone.w": 0.975}
    narrow = {"head.bias": 0.95, "scale": 0.95, "backbone.norm": 0.975}
    assert kept == pytest.approx(wide | (narrow if every else dict.fromkeys(narrow, 1.0)))


@pytest.mark.parametrize(
    ("overrides", "betas", "eps"),
    [
        (["method=idpg"], [0.9, 0.98], 1e-6),
        (["method=ptuning_v2"], [0.9, 0.999], 1e-8),
        (["method=ptuning_v2", "train.betas=[0.8,0.9]", "train.eps=1e-3"], [0.8, 0.9], 1e-3),
    ],
)
def test_methods_set_them_and_so_does_the_command_line(overrides, betas, eps):
    train = train_config(compose_run(overrides).config["train"])
    assert (train.betas, train.eps) == (betas, eps)


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"betas": [0.9]}, r"train.betas is \[0.9\]; use two numbers"),
        ({"betas": [0.9, 1.0]}, r"train.betas is \[0.9, 1.0\]; use two numbers"),
        ({"eps": 0.0}, "train.eps is 0.0; use more than 0"),
    ],
)
def test_values_out_of_range_are_refused(own, message):
    with pytest.raises(UserError, match=message):
        check_train(TrainConfig(**own))


def test_memory_that_runs_out_for_moments_leaves_no_half_step(monkeypatch):
    """The parameters of the first group would be updated before the second has its moments."""
    first, second = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
    groups = [{"params": [p], "share": 1.0} for p in (first, second)]
    own = TorchStepper(torch.optim.AdamW(groups), {"first": first, "second": second})
    first.grad = second.grad = torch.ones(2)
    moments = optim._moments

    def scarce(parameter):
        if parameter is second:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return moments(parameter)

    with monkeypatch.context() as patched, pytest.raises(torch.OutOfMemoryError):
        patched.setattr(optim, "_moments", scarce)
        own.step(0.1)
    assert torch.equal(first, torch.ones(2))
    own.step(0.1)
    assert torch.equal(first, second) and not torch.equal(first, torch.ones(2))
