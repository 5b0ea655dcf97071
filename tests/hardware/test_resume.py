"""An interrupted member goes on bit for bit: tensors, optimizer moments, losses, selection."""

from contextlib import suppress
from functools import partial

import pytest
import torch

from ptrun.method.fine_tuning import FineTuning
from ptrun.method.lora import LoRA
from ptrun.method.ptuning_v2 import PTuningV2
from tests.training import Memory, conll03, engine, member


@pytest.mark.parametrize(
    "make",
    [
        partial(PTuningV2, length=3, reparameterization="mlp", hidden=8),
        FineTuning,
        partial(LoRA, rank=3, dropout=0.3),
    ],
    ids=["ptuning_v2_mlp", "fine_tuning", "lora"],
)
@pytest.mark.parametrize("stop", [1, 7, 12])
def test_a_run_cut_at_any_step_ends_bit_equal(tiny, data_dir, make, stop):
    whole = _run(tiny(), data_dir, make, Memory())
    first = _run(tiny(), data_dir, make, Memory(), stop=stop)
    first.save()
    second = _run(tiny(), data_dir, make, Memory(first.journal.saved))
    assert whole.journal.losses()[stop:] == second.journal.losses()
    assert whole.history == second.history and whole.best_step == second.best_step
    for (name, a), (other, b) in zip(
        sorted(whole.state()[0].items()), sorted(second.state()[0].items()), strict=True
    ):
        assert name == other and torch.equal(a, b), name


class _Cut(Exception):
    pass


def _run(backbone, data_dir, make, journal, stop=None):
    one = member(make, backbone, conll03(data_dir), seed=5, journal=journal, eval_every=3)
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
