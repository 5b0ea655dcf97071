"""Candidates: scores are the library's, COPA's margin and decode are the paper's."""

import math

import pytest
import torch
import transformers

from ptrun.method.manual_prompt import ManualPrompt
from ptrun.method.ptuning import PTuning
from ptrun.readout.base import Features
from ptrun.runs.parts import divide
from ptrun.types import Prediction, Split
from tests.facts import rows_of
from tests.readings import reading
from tests.small_runs import engine

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
        divide(PTuning(tiny(), data, reading=reading("verbalizer", swapped=own)), split)[0].split
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
