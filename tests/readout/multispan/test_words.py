"""Words of a passage under ELECTRA's own head, and under a tagger: scores, losses, thresholds."""

import math

import pytest
import torch
from torch.nn import functional

from ptrun.backbone.base import BackboneOutput
from ptrun.config.build import build
from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.method.dpt import DPT
from ptrun.method.fine_tuning import FineTuning
from ptrun.readout.base import collate
from ptrun.readout.original import ClassWordsReading
from ptrun.readout.spans import Passage, PassageWords, TagHead, answers
from ptrun.runs.parts import usable
from ptrun.task.extraction import Answer
from ptrun.types import Example, Split
from tests.readings import method_of, readout_for
from tests.readout.reading import CPU, fresh, given, loss_and_answers, read, task

TEXT = "Ann and Bob saw Oslo"
Z = [-2.0, 0.9, -0.1, 0.1, 2.0]
BOTH = ["one_minus_sigma", "sigma"]


def said(readout, z):
    """Return a batch of one question about five words, and an output with these logits."""
    target = [Answer("Ann", 0), Answer("Oslo", 16)]
    example = Example("q", {"question": "who?", "context": TEXT}, target)
    batch = collate(readout.encode([example], 64), None, CPU)
    assert len(batch.targets) == len(z), "a token a word"
    return batch, BackboneOutput(logits=torch.tensor(z)[:, None])


@pytest.fixture
def reads(tiny):
    """Return a function that makes the read-out on a tiny ELECTRA."""
    data = task("quoref")
    return lambda **keys: PassageWords(tiny("electra"), data, ClassWordsReading(**keys))


@pytest.mark.parametrize("direction", BOTH)
def test_the_loss_is_binary_cross_entropy_summed_over_tokens_of_the_passage(reads, direction):
    readout = reads(direction=direction)
    batch, output = said(readout, Z)
    sigma = torch.tensor(Z).sigmoid()
    scores = 1 - sigma if direction == "one_minus_sigma" else sigma
    expected = -(scores[[0, 4]].log().sum() + (1 - scores[[1, 2, 3]]).log().sum())
    torch.testing.assert_close(readout.loss(output, batch), expected, atol=1e-6, rtol=1e-6)
    still = readout.loss(BackboneOutput(logits=torch.zeros(5, 1)), batch)
    assert float(still) == pytest.approx(5 * math.log(2), abs=1e-5)


@pytest.mark.parametrize("on", BOTH)
@pytest.mark.parametrize("direction", BOTH)
@pytest.mark.parametrize("threshold", [0.3, 0.6])
def test_answers_lie_beyond_the_threshold_on_the_side_that_is_trained(
    reads, direction, on, threshold
):
    """And the second figure is what the same threshold on the other probability selects."""
    readout = reads(direction=direction, threshold_on=on, threshold=threshold)
    batch, output = said(readout, Z)
    probabilities = {"sigma": torch.tensor(Z).sigmoid()}
    probabilities["one_minus_sigma"] = 1 - probabilities["sigma"]

    def beyond(which):
        own = probabilities[which]
        taken = own > threshold if which == direction else own < threshold
        return {word for word, one in zip(TEXT.split(), taken.tolist(), strict=True) if one}

    told = readout.decode(output, batch)[0]
    other = next(name for name in BOTH if name != on)
    assert {w for text in told.value for w in text.split()} == beyond(on)
    assert {w for text in told.also[f"on_{other}"] for w in text.split()} == beyond(other)


@pytest.mark.parametrize("on", BOTH)
@pytest.mark.parametrize("direction", BOTH)
def test_thresholds_0_and_1_take_all_or_the_best_token(reads, direction, on):
    best = ["Ann"] if direction == "one_minus_sigma" else ["Oslo"]
    for threshold in (0, 1):
        readout = reads(direction=direction, threshold_on=on, threshold=threshold)
        batch, output = said(readout, [500 * z for z in Z])  # beyond what sigma tells from 0 and 1
        all_ = (threshold == 0) == (on == direction)
        told = readout.decode(output, batch)[0]
        assert told.value == ([TEXT] if all_ else best)
        assert list(told.also.values()) == [best if all_ else [TEXT]]


def test_both_thresholds_are_scored(reads, data_dir):
    data = task("quoref", data_dir)
    examples = data.load("train")
    readout = reads(threshold=0)
    batch, output = read(readout, examples)
    scores = data.score(readout.decode(output, batch), examples)
    assert list(scores) == ["em", "f1", "em_on_one_minus_sigma", "f1_on_one_minus_sigma"]
    assert scores["f1"] != scores["f1_on_one_minus_sigma"]


@pytest.mark.parametrize(
    ("kind", "reading", "message"),
    [
        ("bert", {}, "has no head that detects replaced words"),
        ("electra", {"threshold": 1.2}, r"threshold is 1\.2; it is a probability, 0 to 1"),
        ("electra", {"pattern": "dpt"}, "pattern=dpt changes nothing"),
        ("electra", {"bias": True}, "bias=true changes nothing"),
    ],
)
def test_what_cannot_be_read_is_refused(tiny, kind, reading, message):
    with pytest.raises(UserError, match=message):
        readout_for(tiny(kind), task("quoref"), {"readout": "class_words", **reading}, soft=False)


def test_dpt_adds_nothing_to_electra_and_has_no_words_to_reserve(tiny):
    composed = compose_run(["backbone=electra_base", "method=dpt", "task=quoref"])
    config = composed.config
    backbone, data = (
        build("backbone", config["backbone"]),
        build("task", config["task"], None, None),
    )
    counts = method_of(composed, backbone, data).learned_parameters()
    assert counts == {"prompt": 0, "head": 0, "backbone": 109_483_009, "total": 109_483_009}
    with pytest.raises(UserError, match="reserved=true needs rows with all classes"):
        DPT(tiny("electra"), data, reserved=True)


@torch.no_grad()
def test_the_tagger_is_an_mlp_and_its_loss_cross_entropy(tiny, data_dir):
    data = task("quoref", data_dir)
    head = fresh(TagHead(tiny("bert"), data))
    size = head.backbone.shape.hidden_size
    assert sum(p.numel() for p in head.parameters()) == size * size + size + 2 * size + 2
    examples = data.load("train")
    batch = collate(head.encode(examples, 64), None, CPU)
    hidden = head.backbone.forward(given(head, batch)).hidden
    raised = (hidden @ head.dense.weight.T + head.dense.bias).clamp(min=0)
    scores = raised @ head.linear.weight.T
    head.linear.bias.copy_(torch.stack([(scores[:, 1] - scores[:, 0]).median(), torch.tensor(0)]))
    scores = scores + head.linear.bias  # so that half of the tokens are tagged
    loss, answered = loss_and_answers(head, examples)
    assert loss == pytest.approx(float(functional.cross_entropy(scores, batch.targets)), abs=1e-5)
    tags = [own.argmax(1).tolist() for own in batch.by_example(scores)]
    assert {0, 1} == {tag for own in tags for tag in own}
    for f, own, texts in zip(batch.features, tags, answered, strict=True):
        if any(own):
            assert texts == answers(Passage(**f.facts), [tag - 0.5 for tag in own], 0.0)


def test_training_examples_that_lost_an_answer_are_left_out_and_others_kept(tiny, data_dir):
    data = task("quoref", data_dir, max_tokens=30)
    method, examples = FineTuning(tiny(), data), data.load("train")
    kept = usable(method, Split(examples, examples, examples, {}))
    lost = [e.id for e in examples if e not in kept.train]
    assert lost == ["q2", "q3", "q4", "q5"] and list(kept.dev) == list(kept.test) == examples
