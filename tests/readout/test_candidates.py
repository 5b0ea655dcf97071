"""Candidates: scores are the library's, COPA's margin and decode are the paper's."""

import math

import pytest
import torch
import transformers
from torch.nn import functional

from ptrun.backbone.base import BackboneOutput
from ptrun.errors import UserError
from ptrun.hardware.deepspeed_engine import DeepSpeedEngine
from ptrun.method.fine_tuning import FineTuning
from ptrun.method.manual_prompt import ManualPrompt
from ptrun.method.ptuning import PTuning
from ptrun.readout.base import Features
from ptrun.readout.verbalizer import OneRow
from ptrun.runs.examples import divide, usable
from ptrun.types import Prediction, Split
from tests.facts import rows_of
from tests.readings import reading
from tests.small_runs import engine, member

LAST = "task.pvps={last: {pattern: '{premise} {question} {masks}'}}"


def made(tiny, data_dir, kind="bert", **keys):
    """Return a method on COPA; a left-to-right backbone reads options at a pattern's end."""
    data = rows_of("copa", data_dir, *([LAST] if kind == "gpt2" else []))
    named = {"pattern": "last"} if kind == "gpt2" else {}
    return ManualPrompt(tiny(kind), data, reading("verbalizer", **named, **keys))


@torch.no_grad()
def filled(model, row, words):
    """Return PET's score by a loop of its own: the likeliest right token first, then the next."""
    ids, left, total = list(row.ids), dict(zip(row.reads, words, strict=True)), 0.0
    while left:
        given = {"input_ids": torch.tensor([ids])}
        chances = model(**given).logits[0].softmax(-1)
        at = max(left, key=lambda place: float(chances[place, left[place]]))
        total += math.log(float(chances[at, left[at]]))
        ids[at] = left.pop(at)
    return total


def test_masks_are_filled_one_by_one_as_a_loop_by_hand_does(
    tiny, tiny_folder, data_dir, monkeypatch
):
    method = made(tiny, data_dir)
    model = transformers.BertForMaskedLM.from_pretrained(tiny_folder("bert")).eval()
    features = method.encode(method.task.load("test"))
    sums = {}
    best = method.readout._best

    def noted(own: Features, values):
        sums[own.id] = values
        return best(own, values)

    monkeypatch.setattr(method.readout, "_best", noted)
    answers = engine(method.backbone).predict([method], [features])[0]
    for f, answer in zip(features, answers, strict=True):
        expected = [
            filled(model, row, words) for row, words in zip(f.rows, f.facts["words"], strict=True)
        ]
        torch.testing.assert_close(sums[f.id], torch.tensor(expected), atol=1e-4, rtol=1e-5)
        assert answer == Prediction(f.id, expected.index(max(expected)))


def test_swapped_copies_double_what_teaches_and_nothing_else(tiny, data_dir):
    data = rows_of("copa", data_dir)
    split = Split(data.load("train"), data.load("dev"), data.load("test"), {})
    plain, swapped = (
        divide(PTuning(tiny(), data, reading("verbalizer", swapped=own)), split)[0].split
        for own in (False, True)
    )
    assert (len(plain.train), len(swapped.train)) == (6, 12)
    assert swapped.dev == split.dev and swapped.test == split.test
    assert len({e.id for e in swapped.train}) == 12
    for first, second in zip(split.train, swapped.train[6:], strict=True):
        assert second.fields["options"] == first.fields["options"][::-1]
        assert second.fields["options"][second.target] == first.fields["options"][first.target]
    texts = [
        PTuning(tiny(), data).encode([own[0]])[0].rows[0].ids
        for own in (split.train, swapped.train[6:])
    ]
    assert texts[0] != texts[1]


@pytest.mark.parametrize("objective", ["margin", "softmax"])
@pytest.mark.parametrize("right", [[], [0, 1]])
def test_without_a_right_or_a_wrong_candidate_nothing_is_learned(tiny, data_dir, objective, right):
    """The mean of no terms would be no number, and end the run."""
    readout = made(tiny, data_dir, objective=objective).readout
    term = readout._term(Features("a", [], [0], {"right": right}), torch.tensor([-1.0, -2.0]))
    assert term == 0


@pytest.mark.parametrize(
    ("gap", "expected"), [(0.0, 1.0), (0.4, 0.6), (1.0, 0.0), (1.5, 0.0), (-0.5, 1.5)]
)
def test_the_margin_is_one_at_equality_and_nothing_beyond_a_gap_of_one(
    tiny, data_dir, gap, expected
):
    readout = made(tiny, data_dir).readout
    term = readout._term(Features("a", [], [0], {"right": [1]}), torch.tensor([-3.0, -3.0 + gap]))
    assert float(term) == pytest.approx(expected, abs=1e-6)


# COPA's margin of a whole batch equals the released code's, whatever the micro-batches.


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
    with pytest.raises(UserError, match=r"readout\.objective=batch_margin changes nothing"):
        made(tiny, data_dir, "gpt2", objective="batch_margin")


def test_ranks_that_divide_a_batch_are_refused(tiny, data_dir):
    method = made(tiny, data_dir, objective="batch_margin")
    fit = DeepSpeedEngine.__new__(DeepSpeedEngine)
    fit.world = type("World", (), {"data_parallel": 2, "model_parallel": 1})()
    with pytest.raises(UserError, match="needs all rows of a batch"):
        fit.place([method])
