"""P-tuning of a backbone without dropout: each member as it says, also of one population."""

from dataclasses import replace
from functools import partial

import pytest
import torch

from ptrun.errors import UserError
from ptrun.method.ptuning import PTuning
from tests.facts import facts
from tests.small_runs import engine, fitted, member

KINDS = ("gpt2", "megatron")
TOLERANCE = {"atol": 1e-5, "rtol": 0}


def learner(loaded, folder, seed=1, *, quiet, steps=4):
    """Return a member whose objects are some tokens: the tiny vocabulary has no whole words."""
    make = partial(PTuning, encoder="plain", lm_eval_mode=quiet)
    one = member(make, loaded, facts(folder), seed, max_steps=steps, batch_size=5)
    one.features = [replace(own, targets=[9 + i]) for i, own in enumerate(one.features)]
    return one


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_only_without_it_dropout_acts_in_the_frozen_backbone(tiny, tmp_path, kind):
    loaded = tiny(kind)
    assert loaded.shape.dropout == 0.1
    quiet, default = (learner(loaded, tmp_path, quiet=own) for own in (True, False))
    seen = engine(loaded)
    with torch.no_grad():
        batch = seen._collate(quiet.batch())
        plain = quiet.method.loss(loaded.forward(quiet.method.inputs(batch)), batch)
    for one in (quiet, default):
        fitted([one])
    first = [one.journal.losses()[0] for one in (quiet, default)]
    assert first[0] == pytest.approx(float(plain) / 5, abs=1e-5)
    assert abs(first[1] - first[0]) > 1e-3, "the same start and batch, with dropout"


@pytest.mark.slow
def test_a_population_may_differ_in_it_and_each_learns_as_alone(tiny, tmp_path):
    loaded, wanted = tiny("gpt2"), [(1, True), (2, False), (3, True)]
    together = [learner(loaded, tmp_path, seed, quiet=q) for seed, q in wanted]
    fitted(together)
    for joint, (seed, quiet) in zip(together, wanted, strict=True):
        solo = learner(loaded, tmp_path, seed, quiet=quiet)
        fitted([solo], budget=10_000)
        losses = (torch.tensor(one.journal.losses()) for one in (joint, solo))
        torch.testing.assert_close(*losses, **TOLERANCE)
        for name, tensor in solo.learned.items():
            torch.testing.assert_close(joint.learned[name], tensor, **TOLERANCE)


def test_a_tuned_backbone_is_refused(tiny, tmp_path):
    with pytest.raises(UserError, match=r"lm_eval_mode=true is for a frozen backbone, .*tunes it"):
        PTuning(tiny("gpt2"), facts(tmp_path), lm_eval_mode=True, tune_backbone=True)
