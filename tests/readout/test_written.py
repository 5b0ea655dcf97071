"""WSC by writing: right noun phrases teach, what is written greedily is compared."""

import pytest
import torch

from ptrun.method.manual_prompt import ManualPrompt
from ptrun.readout.verbalizer import Written
from ptrun.runs.parts import divide
from ptrun.types import Split
from tests.backbone import glm_reference
from tests.facts import rows_of
from tests.readings import reading
from tests.small_runs import engine

START, END, LONGEST = 261, 262, 16
TEXT = "task.pvps={one: {pattern: '{text} *{span2_text}* {mask}.'}}"


@pytest.fixture
def method(tiny, data_dir):
    return ManualPrompt(
        tiny("blocklm"),
        rows_of("wsc", data_dir, TEXT),
        reading=reading("verbalizer", pattern="one"),
    )


def test_the_phrase_and_its_end_are_learned_and_shown_in_training_alone(method):
    assert isinstance(method.readout, Written)
    data = method.task
    split = Split(data.load("train"), data.load("dev"), data.load("test"), {})
    (part,) = divide(method, split)
    words = method.readout.encoder.spelling.answer("The lamp")
    (taught,) = method.encode(part.split.train[:1])
    assert taught.targets == [*words, END]
    assert taught.rows[0].decoder == [START, *words]
    assert taught.rows[0].reads == list(range(len(words) + 1))
    for features in method.encode(split.train):
        assert features.targets == [] and features.rows[0].decoder == [START]


def test_the_loss_is_cross_entropy_over_what_is_written(method):
    data = method.task
    split = Split(data.load("train"), data.load("dev"), data.load("test"), {})
    (part,) = divide(method, split)
    features = method.encode(part.split.train)
    batch = engine(method.backbone)._collate(features)
    with torch.no_grad():
        found = method.loss(method.backbone.forward(method.inputs(batch)), batch)
        wanted = sum(by_hand(method, f.rows[0], f.targets) for f in features)
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=0)


def logits(method, row, written):
    """Return the plain reference's logits of a row's text and what is written in its blank."""
    state = glm_reference.original(dict(method.backbone.model.named_parameters()))
    sep, more = len(row.ids), len(written)
    places = torch.tensor([*range(sep), *[row.types.index(1)] * more])
    inside = torch.tensor([0] * sep + list(range(1, more + 1)))
    return glm_reference.logits(state, torch.tensor(row.ids + written), places, inside, sep, 2)


def by_hand(method, row, targets):
    logs = logits(method, row, row.decoder)[len(row.ids) :].log_softmax(dim=-1)
    return -sum(own[target] for own, target in zip(logs, targets, strict=True))


@torch.no_grad()
def greedy(method, row):
    written = [START]
    while len(written) <= LONGEST:
        word = int(logits(method, row, written)[-1].argmax())
        if word == END:
            break
        written.append(word)
    return written[1:]


@pytest.mark.parametrize("budget", [60, 10_000])
def test_what_is_written_is_greedy_whoever_shares_the_passes(method, monkeypatch, budget):
    features = method.encode(method.task.load("test"))
    named = {}
    answer = method.readout.judged
    monkeypatch.setattr(
        method.readout,
        "judged",
        lambda own, noun: named.setdefault(tuple(own), noun) and answer(own, noun),
    )
    with torch.no_grad():  # so that some phrases end by themselves
        method.backbone.model.transformer.wte.weight[END] *= -3
    (answers,) = engine(method.backbone, budget).predict([method], [features])
    wanted = [greedy(method, f.rows[0]) for f in features]
    assert {tuple(own) for own in wanted} == set(named)
    assert [a.value for a in answers] == [
        answer(own, f.facts["noun"]) for own, f in zip(wanted, features, strict=True)
    ]
    assert {len(own) for own in wanted} != {LONGEST}
