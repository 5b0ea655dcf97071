"""A population is its solo runs: nothing of one member reaches another."""

from functools import partial

import pytest
import torch

from ptrun.errors import UserError
from ptrun.hardware.torch_engine import TorchEngine
from ptrun.method.fine_tuning import FineTuning
from ptrun.method.lora import LoRA
from ptrun.method.prompt_lora import PromptLoRA
from ptrun.method.prompt_tuning import PromptTuning
from ptrun.method.ptuning_v2 import PTuningV2
from ptrun.training import loop
from tests.small_runs import Memory, conll03, engine, fitted, member, sst2
from tests.tiers import tiered

RUNS = [(1, 1e-2), (2, 1e-2), (3, 3e-2), (4, 5e-3)]
METHODS = {
    "prompt_tuning": partial(PromptTuning, length=3),
    "ptuning_v2": partial(PTuningV2, length=3),
    "ptuning_v2_mlp": partial(PTuningV2, length=3, reparameterization="mlp", hidden=8),
    "lora": partial(LoRA, rank=2, dropout=0.1),
    "ptuning_v2_top": partial(PTuningV2, length=3, layers=[3, 3]),
}
FIRST = [("bert", "ptuning_v2", conll03)]
TOLERANCE = {"atol": 1e-5, "rtol": 0}


def train(members, budget=40):
    fitted(members, budget)
    return members


OTHERS = ("albert", "deberta", "gpt2", "llama", "t5", "megatron", "blocklm")
EPS = {"blocklm": 1e-6}
"""A hidden state's gradient may be rounding alone, which AdamW at 1e-8 would make a whole step."""
SCALE = {"lora": 0.1, "t5": 0.1}
"""Of the rates. At those of prompts, far above LoRA's, training amplifies rounding to 1e-3; that of
a T5's prompt to 2e-5."""
CELLS = [("bert", name, task) for name in METHODS for task in (sst2, conll03)]
EACH = [("prompt_tuning", sst2), ("ptuning_v2", conll03), ("lora", sst2)]
CELLS += [(kind, *EACH[place % 3]) for place, kind in enumerate(OTHERS)]
CELLS += [(kind, *each) for kind in ("gpt2", "t5") for each in EACH]
CELLS = [*dict.fromkeys(CELLS)]


@pytest.mark.parametrize(("kind", "name", "task"), tiered(CELLS, lambda *cell: cell in FIRST))
def test_four_members_equal_their_four_solo_runs(tiny, data_dir, kind, name, task):
    backbone, data, make = tiny(kind), task(data_dir), METHODS[name]
    keys = {"eps": EPS.get(kind, 1e-8)}
    runs = [(seed, lr * SCALE.get(name, SCALE.get(kind, 1))) for seed, lr in RUNS]
    together = train([member(make, backbone, data, seed, lr=lr, **keys) for seed, lr in runs])
    for joint, (seed, lr) in zip(together, runs, strict=True):
        alone = member(make, backbone, data, seed, lr=lr, **keys)
        (solo,) = train([alone], budget=10_000)  # one pass
        assert solo.step == joint.step == 20
        torch.testing.assert_close(
            torch.tensor(solo.journal.losses()), torch.tensor(joint.journal.losses()), **TOLERANCE
        )
        for name, tensor in solo.learned.items():
            torch.testing.assert_close(tensor, joint.learned[name], **TOLERANCE)


@pytest.mark.slow
@pytest.mark.parametrize("count", [5, 20])
def test_many_prompts_share_one_copy_of_a_t5_by_token_budget(tiny, data_dir, count):
    backbone, data, make = tiny("t5"), sst2(data_dir), METHODS["prompt_tuning"]
    own = [member(make, backbone, data, seed, max_steps=2) for seed in range(count)]
    fit = TorchEngine(
        backbone, device="cpu", precision="bf16", token_budget=60, checkpointing=True,
        population=count,
    )  # fmt: skip
    fit.place([one.method for one in own])
    weights = {name: p.data_ptr() for name, p in backbone.model.named_parameters()}
    passes, run = [], backbone.forward

    def forward(given):
        assert next(backbone.model.parameters()).dtype is torch.bfloat16
        passes.append((given.mask.shape[0], given.mask.shape[1] - 3))  # the text, less 3 vectors
        return run(given)

    backbone.forward = forward
    fit.fit(own)
    assert all(rows * width <= 60 for rows, width in passes)
    assert max(rows for rows, _ in passes) > 4  # of several members
    assert {name: p.data_ptr() for name, p in backbone.model.named_parameters()} == weights
    assert all(one.step == 2 and one.failed is None for one in own)
    assert all(p.dtype is torch.float32 for one in own for p in one.learned.values())
    backbone = tiny("t5")
    (solo,) = train([member(make, backbone, data, count - 1, max_steps=2)])  # in fp32
    losses = (torch.tensor(one.journal.losses()) for one in (solo, own[-1]))
    torch.testing.assert_close(*losses, atol=2e-2, rtol=2e-2)


PREFIXES = [
    partial(PTuningV2, length=2),
    partial(PTuningV2, length=5, layers=[2, 3]),
    partial(PTuningV2, length=4, shift_positions=False),
]
PROMPTS = [
    partial(PromptTuning, length=2),
    partial(PromptTuning, length=5, rescale=10.0),
    partial(PromptTuning, length=4, double_embedding=True),
]
BOTH = [
    partial(PromptLoRA, length=2, rank=1, lora_lr=1e-3),
    partial(PromptLoRA, length=5, rank=3, alpha=4),
]


@pytest.mark.slow
@pytest.mark.parametrize("makes", [PREFIXES, PROMPTS, BOTH], ids=["prefixes", "prompts", "both"])
def test_members_may_differ_in_length_and_form(tiny, data_dir, makes):
    backbone, data = tiny(), sst2(data_dir)
    together = train([member(make, backbone, data, i) for i, make in enumerate(makes)])
    for index, make in enumerate(makes):
        (solo,) = train([member(make, backbone, data, index)])
        for name, tensor in solo.learned.items():
            torch.testing.assert_close(tensor, together[index].learned[name], **TOLERANCE)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ptuning_v2", "lora"])
def test_a_nan_in_one_member_leaves_the_others_as_they_were(tiny, data_dir, name):
    backbone, data, make = tiny(), sst2(data_dir), METHODS[name]

    class Poison(Memory):
        """Turns the member's prompt into NaN after its fifth step."""

        def log(self, row):
            super().log(row)
            if row.get("step") == 5:
                next(iter(self.owner.learned.values())).data.fill_(float("nan"))

    runs = [(seed, lr * SCALE.get(name, 1)) for seed, lr in RUNS]
    members = [
        member(make, backbone, data, seed, journal=Poison() if seed == 2 else None, lr=lr)
        for seed, lr in runs
    ]
    members[1].journal.owner = members[1]
    train(members)
    assert "step 6" in members[1].failed and members[1].step == 5
    for index in (0, 2, 3):
        seed, lr = runs[index]
        (solo,) = train([member(make, backbone, data, seed, lr=lr)])
        assert members[index].failed is None
        for name, tensor in solo.learned.items():
            torch.testing.assert_close(tensor, members[index].learned[name], **TOLERANCE)


def test_members_stop_early_on_their_own(tiny, data_dir):
    backbone, data, make = tiny(), sst2(data_dir), METHODS["ptuning_v2"]
    patient = member(make, backbone, data, 1, eval_every=2)
    hasty = member(make, backbone, data, 2, eval_every=2, patience=1, lr=1e-9)
    train([patient, hasty])
    assert patient.step == 20 and hasty.step == 4


def test_a_method_that_tunes_the_backbone_refuses_company(tiny, data_dir):
    backbone, data = tiny(), sst2(data_dir)
    methods = [FineTuning(backbone, data) for _ in range(2)]
    with pytest.raises(UserError, match="FineTuning tunes the backbone"):
        engine(backbone).place(methods)


def test_the_token_budget_changes_no_gradient(tiny, data_dir):
    backbone, data, make = tiny(), conll03(data_dir), METHODS["ptuning_v2"]
    gradients = []
    for budget in (1, 30, 10_000):
        one = member(make, backbone, data)
        fit = engine(backbone, budget)
        losses, _ = fit._accumulate([one])
        gradients.append([torch.tensor(losses), *(p.grad for p in one.learned.values())])
    for other in gradients[1:]:
        for a, b in zip(gradients[0], other, strict=True):
            torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("losses", [True, False])
def test_an_evaluation_in_parts_is_the_evaluation_of_all(tiny, data_dir, monkeypatch, losses):
    """Members of several lengths, and a part that ends within the examples of one of them."""
    backbone, data = tiny("bert"), sst2(data_dir)
    members = [member(METHODS["ptuning_v2"], backbone, data, seed) for seed in (1, 2)]
    own = engine(backbone)
    methods, features = [m.method for m in members], [m.dev for m in members]
    features[1] = features[1][:3]
    own.place(methods)
    whole = own.evaluate(methods, features, losses=losses)
    monkeypatch.setattr(loop, "KEPT", 2)
    parts = own.evaluate(methods, features, losses=losses, probabilities=False)
    assert parts[0] == whole[0] and [len(one) for one in parts[0]] == [len(f) for f in features]
    assert parts[1] == pytest.approx(whole[1], abs=1e-5)
    assert all(p.probabilities is None for one in parts[0] for p in one)
    assert all(p.probabilities is not None for one in whole[0] for p in one)
