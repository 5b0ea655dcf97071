"""An interrupted member goes on bit for bit: tensors, optimizer moments, losses, selection."""

from contextlib import suppress
from functools import partial

import pytest
import torch

from ptrun.config.schema import Optimizer, Ties
from ptrun.errors import UserError
from ptrun.method.dept import DePT
from ptrun.method.fine_tuning import FineTuning
from ptrun.method.idpg import IDPG
from ptrun.method.lora import LoRA
from ptrun.method.peft import PeftMethod
from ptrun.method.prompt_lora import PromptLoRA
from ptrun.method.ptuning import PTuning
from ptrun.method.ptuning_v2 import PTuningV2
from ptrun.training.member import save
from tests.facts import facts
from tests.readings import reading, reads
from tests.small_runs import Memory, conll03, engine, member
from tests.task.test_multi import both
from tests.tiers import tiered

DORA = {"peft_type": "LORA", "use_dora": True, "r": 3, "lora_dropout": 0.3}


@pytest.mark.parametrize(
    "make",
    [
        partial(PTuningV2, length=3, reparameterization="mlp", hidden=8),
        FineTuning,
        partial(LoRA, rank=3, dropout=0.3),
        partial(PeftMethod, config=DORA),
        partial(DePT, length=3, rank=2, pair_lr=1e-3),
        partial(PromptLoRA, length=3, rank=2, dropout=0.3, lora_lr=1e-3),
        partial(IDPG, length=3, hidden=8, order=4),
    ],
    ids=["ptuning_v2_mlp", "fine_tuning", "lora", "peft_dora", "dept", "prompt_lora", "idpg"],
)
@pytest.mark.parametrize("stop", tiered([1, 7, 12], lambda stop: stop == 7))
def test_a_run_cut_at_any_step_ends_bit_equal(tiny, data_dir, make, stop):
    whole, first, second = _cut_and_resumed(tiny, data_dir, make, stop)
    assert 0 < first.seconds == second.earlier < second.seconds
    for (name, a), (other, b) in zip(
        sorted(whole.state()[0].items()), sorted(second.state()[0].items()), strict=True
    ):
        assert name == other and torch.equal(a, b), name


TWO_RATES = {"lr": 1e-3, "backbone_lr": 1e-4, "backbone_weight_decay": 0.1, "drop_last": True}


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", Optimizer)
def test_two_rates_resume_bit_equal_after_an_evaluation_before_the_first_step(
    tiny, tmp_path, optimizer
):
    """P-tuning's regimes: an encoder beside a tuned backbone, Adam as on LAMA."""
    task = facts(tmp_path, "task.vocabulary=null")
    make = partial(PTuning, tune_backbone=True)
    train = {"task": task, "optimizer": optimizer, "eval_first": True, "ties": Ties.last}
    train |= TWO_RATES
    _cut_and_resumed(tiny, tmp_path, make, 7, **train)


class _Cut(Exception):
    pass


def _cut_and_resumed(tiny, data_dir, make, stop, **train):
    """Return a run, one that ended after `stop` steps, and the rest of that; the bits are equal."""
    whole = _run(tiny(), data_dir, make, Memory(), **train)
    first = _run(tiny(), data_dir, make, Memory(), stop=stop, **train)
    save([first])
    tensors, plain = first.journal.saved
    saved = tensors, {**plain, "losses": first.journal.losses()}  # as a run folder restores it
    second = _run(tiny(), data_dir, make, Memory(saved), **train)
    assert whole.health.losses == second.health.losses
    assert whole.journal.losses()[stop:] == second.journal.losses()
    assert whole.history == second.history and whole.best_step == second.best_step
    assert all(torch.equal(whole.learned[name], p) for name, p in second.learned.items())
    return whole, first, second


def _run(backbone, data_dir, make, journal, stop=None, task=None, **train):
    task = task or conll03(data_dir)
    one = member(make, backbone, task, seed=5, journal=journal, **{"eval_every": 3, **train})
    fit = engine(backbone)
    fit.place([one.method])
    if stop is not None:
        evaluate = fit._evaluate

        def cut(due):
            evaluate(due)
            if one.step == stop:
                raise _Cut

        fit._evaluate = cut
    with suppress(_Cut):
        fit.fit([one])
    return one


@pytest.mark.slow
@pytest.mark.parametrize("stop", [1, 4, 7])
def test_heads_that_some_batches_leave_alone_resume_with_their_own_count(tiny, data_dir, stop):
    """MPT-2: Adam's bias correction counts a head's own updates, not the run's steps."""
    task = both(data_dir)
    make = reads(PTuningV2, reading("head", pooler="none"), length=3)
    whole, _, _ = _cut_and_resumed(tiny, data_dir, make, stop, task=task)
    counts = {float(state["step"]) for state in whole.optimizer.state.values()}
    assert len(counts) > 1  # else this would test nothing


def test_masks_of_another_rule_are_not_resumed(tiny, data_dir):
    """The second half of such a run would belong to no rule."""
    _, first, _ = _cut_and_resumed(tiny, data_dir, partial(PTuningV2, length=3), 1)
    tensors, plain = first.journal.saved
    first.journal.saved = tensors, {**plain, "masks": 1}
    with pytest.raises(UserError, match=r"masks of rule 1, and this version .* 2.*rerun=true"):
        first.resume()
