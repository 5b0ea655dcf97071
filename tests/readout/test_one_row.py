"""COPA's margin of a whole batch equals the released code's, whatever the micro-batches."""

import pytest
import torch
from torch.nn import functional

from ptrun.backbone.base import BackboneOutput
from ptrun.errors import UserError
from ptrun.hardware.deepspeed_engine import DeepSpeedEngine
from ptrun.method.fine_tuning import FineTuning
from ptrun.method.manual_prompt import ManualPrompt
from ptrun.readout.verbalizer import OneRow
from ptrun.runs.parts import usable
from ptrun.types import Split
from tests.facts import rows_of
from tests.readings import reading
from tests.small_runs import engine, member

READING = reading("verbalizer", objective="batch_margin", swapped=True)


def taught(method):
    """Return the training examples of a method as it encodes them."""
    data = method.task
    split = usable(method, Split(data.load("train"), data.load("dev"), data.load("test"), {}))
    return method.encode(split.train)


def by_the_released_code(logits, features):
    """Return CopaTaskHelper's loss from logits `[B, T, V]`: -100 is ignored, means over tokens."""
    right, wrong = (torch.full(logits.shape[:2], -100) for _ in range(2))
    for i, f in enumerate(features):
        start = f.rows[0].reads[0]
        for option, words in enumerate(f.facts["words"]):
            target = right if option in f.facts["right"] else wrong
            target[i, start : start + len(words)] = torch.tensor(words)
    means = [functional.cross_entropy(logits.flatten(0, 1), t.flatten()) for t in (right, wrong)]
    return (1 + means[0] - means[1]).clamp(min=0)


@pytest.mark.parametrize("bias", [0.0, 30.0])
def test_the_loss_is_the_released_codes(tiny, data_dir, bias):
    """With a bias to the right tokens the margin is 0 for the batch, not example by example."""
    method = FineTuning(tiny(), rows_of("copa", data_dir), READING)
    features = taught(method)
    assert isinstance(method.readout, OneRow) and len(features) == 12
    assert all(len(f.rows) == 1 for f in features)
    assert all(len(f.rows[0].reads) == max(map(len, f.facts["words"])) for f in features)
    batch = engine(method.backbone)._collate(features)
    logits = 3 * torch.randn(*batch.ids.shape, 200, generator=torch.Generator().manual_seed(1))
    for i, f in enumerate(features):
        (right,) = f.facts["right"]
        for at, word in zip(f.rows[0].reads, f.facts["words"][right], strict=False):
            logits[i, at, word] += bias * (i % 3)
    output = BackboneOutput(logits=logits[batch.reads.rows, batch.reads.columns])
    expected = by_the_released_code(logits, features)
    assert float(expected) == 0 if bias else float(expected) > 0.1
    ours = method.loss(output, batch) / len(batch.targets)
    torch.testing.assert_close(ours, expected, atol=1e-6, rtol=1e-6)


def test_a_step_reads_its_batch_at_once(tiny, data_dir, monkeypatch):
    """A token budget would divide the batch, and each part would have a margin of its own."""
    backbone = tiny()
    one = member(
        lambda b, t: FineTuning(b, t, READING), backbone, rows_of("copa", data_dir), max_steps=2
    )
    one.features = taught(one.method)
    fit = engine(backbone, 8)
    fit.place([one.method])
    sizes = []
    loss = one.method.readout.loss
    monkeypatch.setattr(
        one.method.readout, "loss", lambda o, b: sizes.append(len(b.features)) or loss(o, b)
    )
    fit.fit([one])
    assert sizes == [4, 4]


def test_it_is_refused_where_options_have_rows_of_their_own(tiny, data_dir):
    last = "task.pvps={last: {pattern: '{premise} {question} {masks}'}}"
    with pytest.raises(UserError, match=r"readout\.objective=batch_margin changes nothing"):
        ManualPrompt(
            tiny("gpt2"),
            rows_of("copa", data_dir, last),
            reading=reading("verbalizer", objective="batch_margin"),
        )


def test_ranks_that_divide_a_batch_are_refused(tiny, data_dir):
    method = ManualPrompt(
        tiny(), rows_of("copa", data_dir), reading=reading("verbalizer", objective="batch_margin")
    )
    fit = DeepSpeedEngine.__new__(DeepSpeedEngine)
    fit.world = type("World", (), {"data_parallel": 2, "model_parallel": 1})()
    with pytest.raises(UserError, match="needs all rows of a batch"):
        fit.place([method])
