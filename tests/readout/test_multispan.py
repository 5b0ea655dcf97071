"""From tokens' odds to answers: whole words, runs, at least one, nothing twice."""

import math
from random import Random

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
from ptrun.readout.spans import Passage, PassageWords, TagHead, answers, distinct
from ptrun.runs.examples import usable
from ptrun.task.extraction import Answer
from ptrun.types import Example, Split
from tests.pattern import tokenizers
from tests.readings import method_of, readout_for
from tests.readout.reading import CPU, fresh, given, loss_and_answers, read, task, words_only

TEXT = "Annette met Bob in Oslo."
PIECES = ["Ann", "ette", "met", "B", "ob", "in", "Os", "lo", "."]
NUMBERS = [0, 0, 1, 2, 2, 3, 4, 4, 5]


def passage():
    starts, at = [], 0
    for piece in PIECES:
        at = TEXT.index(piece, at)
        starts.append(at)
        at += len(piece)
    ends = [start + len(piece) for start, piece in zip(starts, PIECES, strict=True)]
    return Passage(TEXT, starts, ends, NUMBERS)


def told(*taken, least=0.0):
    odds = [1.0 if piece in taken else -1.0 for piece in PIECES]
    return answers(passage(), odds, least)


@pytest.mark.parametrize(
    ("taken", "expected"),
    [
        (["ette"], ["Annette"]),
        (["B", "Os"], ["Bob", "Oslo"]),
        (["Ann", "met", "ob"], ["Annette met Bob"]),
        (["Ann", "ob"], ["Annette", "Bob"]),
        (["lo", "."], ["Oslo."]),
        (PIECES, [TEXT]),
    ],
)
def test_words_are_taken_whole_and_neighbours_join(taken, expected):
    assert told(*taken) == expected


def test_without_a_token_above_the_border_the_best_one_answers():
    odds = [-5.0, -4, -9, -8, -3, -9, -9, -9, -3.5]
    assert answers(passage(), odds, 0.0) == ["Bob"]
    assert answers(passage(), odds, math.inf) == ["Bob"]
    assert answers(passage(), odds, -math.inf) == [TEXT]


def test_no_answer_is_ever_part_of_a_word():
    """Whatever the odds, an answer begins and ends where words do."""
    rng, words = Random(0), ["Annette", "met", "Bob", "in", "Oslo", "."]
    for _ in range(300):
        found = answers(passage(), [rng.gauss(0, 1) for _ in PIECES], rng.gauss(0, 2))
        assert found
        for text in found:
            assert text.replace(".", " .").split() in [
                words[i:j] for i in range(6) for j in range(i + 1, 7)
            ]


@pytest.mark.parametrize(
    ("texts", "kept"),
    [
        (["Bob", "Eve", "Bob"], ["Bob", "Eve"]),
        (["Bob", "BOB"], ["Bob"]),
        (["Bob", "Bob Ray"], ["Bob Ray"]),
        (["Ray", "Bob Ray"], ["Bob Ray"]),
        (["boat", "boats"], ["boats"]),
        (["Rome", "Romen"], ["Romen"]),
        (["late", "Chocolates"], ["Chocolates"]),
        (["Rome", "Romeo"], ["Rome", "Romeo"]),
        (["Ann", "Mary-Ann"], ["Ann", "Mary-Ann"]),
        (["Ann", "Mary-Ann-Bob"], ["Mary-Ann-Bob"]),
    ],
)
def test_equal_texts_and_parts_of_others_are_dropped(texts, kept):
    assert distinct(texts) == kept
    assert sorted(t.lower() for t in distinct(texts[::-1])) == sorted(t.lower() for t in kept)


# Passages of multi-span questions: what is read, which words an answer has, what was cut.


STYLES = {"bert": "masked", "roberta": "masked", "gpt2": "causal", "t5": "seq2seq"}
WORDS = ["film", "filmfilm", "Oslo", "xyz", "e\u0301te", "good,", "A-good", "日本", "☃", "film."]


def head(style="bert"):
    return TagHead(words_only(getattr(tokenizers, style)(), STYLES[style]), task("quoref"))


def question(context, *wanted, asked="who?"):
    found = [Answer(text, context.index(text)) for text in wanted]
    return Example("q", {"question": asked, "context": context}, found)


def encoded(reads, example, room=512):
    features = reads.encode([example], room)[0]
    return features, Passage(**features.facts)


def decoded(passage, tags):
    return answers(passage, [tag - 0.5 for tag in tags], 0.0)


def test_the_passage_alone_is_read_and_every_piece_of_an_answer_is_tagged():
    reads = head()
    features, _ = encoded(reads, question("Oslo and Bob saw Annfilm.", "Oslo", "Annfilm"))
    row = features.rows[0]
    pieces = reads.backbone.tokenizer().convert_ids_to_tokens(row.ids)
    begin, end = pieces.index("[SEP]") + 1, len(pieces) - 1
    assert pieces[0] == "[CLS]" and pieces[end] == "[SEP]"
    assert row.types == [0] * begin + [1] * (end + 1 - begin)
    assert row.reads == list(range(begin, end)) and len(features.targets) == end - begin
    tagged = [p for p, tag in zip(pieces[begin:end], features.targets, strict=True) if tag]
    assert len(tagged) > 2 and "".join(tagged).replace("##", "") == "OsloAnnfilm"


@pytest.mark.parametrize("style", STYLES)
def test_gold_spans_tagged_are_gold_spans_answered(style):
    """Any runs of words with a word between them, in any script, through each sort of tokenizer."""
    reads, rng = head(style), Random(0)
    for _ in range(60):
        words = [rng.choice(WORDS) for _ in range(12)]
        starts = [sum(len(w) + 1 for w in words[:i]) for i in range(12)]
        spans = [(0, rng.randint(1, 3)), (4, 4 + rng.randint(1, 3)), (8, 8 + rng.randint(1, 3))]
        text = " ".join(words)
        gold = [Answer(" ".join(words[a:b]), starts[a]) for a, b in spans]
        example = Example("q", {"question": "who?", "context": text}, gold)
        features, passage = encoded(reads, example)
        assert passage.holds(gold)
        assert decoded(passage, features.targets) == distinct([a.text for a in gold])


@pytest.mark.parametrize("style", ["bert", "roberta", "gpt2"])
def test_words_are_letters_that_touch_and_each_other_sign(style):
    _, passage = encoded(head(style), question("Annfilm's well-made 1,000 ☃☃."))
    words = [passage.between(i, i) for i in range(passage.words[-1] + 1)]
    assert "".join(words) == "Annfilm'swell-made1,000☃☃."
    assert {"Annfilm", "well", "-", "made"} <= set(words) and words[-1] == "."


def test_an_answer_that_ends_inside_a_word_is_the_whole_word():
    features, passage = encoded(head(), question("Bob saw Annfilm today.", "Annf"))
    assert decoded(passage, features.targets) == ["Annfilm"]


def test_a_long_passage_is_cut_once_and_teaches_only_if_it_holds_every_answer():
    reads = head()
    text = "Oslo met Bob " + "film " * 60 + "Rome"
    near, far = question(text, "Oslo", "Bob"), question(text, "Oslo", "Rome")
    assert reads.teaching([near, far], 32) == [near]
    assert reads.teaching([near, far], 512) == [near, far]
    cut, passage = encoded(reads, far, 32)
    assert len(cut.rows) == 1 and len(cut.rows[0].ids) == 32 and passage.text == text
    assert decoded(passage, cut.targets) == ["Oslo"]
    last = reads.encode([question(text, "Oslo", asked="film " * 60)], 32)[0].rows[0]
    assert len(last.ids) == 32 and last.reads[0] == 18, "a question has half the row at most"


def test_a_passage_of_nothing_has_no_answer():
    features, passage = encoded(head(), question("\t \n"))
    assert features.targets == [] and answers(passage, [], 0.0) == []


def test_an_answer_that_the_cut_goes_through_is_not_held():
    reads = head()
    context = "film " * 20 + "Annfilmfilmfilm"
    full = len(reads.encode([question(context)], 512)[0].rows[0].ids)
    asked = question(context, "Annfilmfilmfilm")
    assert [bool(reads.teaching([asked], full - less)) for less in (0, 1)] == [True, False]


# The words that ELECTRA's head selects, and a tagger: scores, losses, thresholds.


SEEN = "Ann and Bob saw Oslo"
Z = [-2.0, 0.9, -0.1, 0.1, 2.0]
BOTH = ["one_minus_sigma", "sigma"]


def said(readout, z):
    """Return a batch of one question about five words, and an output with these logits."""
    target = [Answer("Ann", 0), Answer("Oslo", 16)]
    example = Example("q", {"question": "who?", "context": SEEN}, target)
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
        return {word for word, one in zip(SEEN.split(), taken.tolist(), strict=True) if one}

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
        assert told.value == ([SEEN] if all_ else best)
        assert list(told.also.values()) == [best if all_ else [SEEN]]


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
