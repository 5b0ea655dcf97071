"""Label words through the head: their softmax, the vocabulary's, and where each family reads."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from ptrun.backbone.base import BackboneOutput
from ptrun.errors import UserError
from ptrun.pattern.pattern import read_pvp
from ptrun.readout.base import collate
from ptrun.readout.label_words import LabelWords
from ptrun.readout.verbalizer import VerbalizerReading
from ptrun.types import Example
from tests.readings import readout_for
from tests.readout.reading import CPU, loss_and_answers, pocket, read, task
from tests.small_runs import sst2

ONE = {"negative": ["bad"], "positive": ["good"]}
PATTERN = "{~sentence} film was {mask}."


def words(backbone, data, pattern=PATTERN, words=ONE, rule="single", **options):
    pvp = read_pvp("own", {"pattern": pattern, "words": words, "rule": rule})
    return LabelWords(backbone, data, pvp, VerbalizerReading(**options))


def ids(backbone, text):
    return backbone.tokenizer()(text, add_special_tokens=False)["input_ids"]


def test_letters_go_no_further_than_the_options(tiny, data_dir):
    """One question of four options and one of two, D the likeliest letter of all."""
    data, backbone = task("race_middle", data_dir), tiny()
    pvp = read_pvp("own", {"pattern": "{question}{options|letters} The film is {mask}"})
    reads = LabelWords(backbone, data, pvp, VerbalizerReading())
    examples = data.load("train")[:2]
    examples[1].fields["options"][:] = ["in Oslo", "in Rome"]
    batch = collate(reads.encode(examples, 64), None, CPU)
    logits = torch.zeros(2, backbone.model.config.vocab_size)
    letters = [ids(backbone, letter)[0] for letter in "ABCD"]
    logits[:, letters] = torch.tensor([1.0, 2.0, 3.0, 4.0])
    output = BackboneOutput(logits=logits)
    assert [p.value for p in reads.decode(output, batch)] == [3, 1]
    right = [logits[0, letters].log_softmax(0)[0], logits[1, letters[:2]].log_softmax(0)[1]]
    assert examples[0].target == 0 and examples[1].target == 1
    assert abs(float(reads.loss(output, batch)) + float(sum(right))) < 1e-5


@pytest.mark.parametrize("word", ["film", "plot", "dull", "good"])
def test_another_word_is_never_a_label(tiny, word):
    """Labels are called `film` and `plot`: the head saying so is not answering so."""
    backbone = tiny()
    data = task("sst2", "none", labels={"film": 0, "plot": 1}, pvps={})
    reads = words(backbone, data, words={"film": ["good"], "plot": ["bad"]}, among="vocabulary")
    example = Example("x", {"sentence": "a film"}, "film")
    batch = collate(reads.encode([example], 64), None, CPU)
    logits = torch.zeros(1, backbone.model.config.vocab_size)
    logits[0, ids(backbone, word)[0]] = 1
    answer = reads.decode(BackboneOutput(logits=logits), batch)[0].value
    assert (answer == "film") if word == "good" else (answer not in data.labels and word in answer)


def test_a_question_s_other_words_are_no_option(tiny, data_dir):
    data, backbone = task("race_middle", data_dir), tiny()
    pvp = read_pvp("own", {"pattern": "{question}{options|letters} The film is {mask}"})
    reads = LabelWords(backbone, data, pvp, VerbalizerReading(among="vocabulary"))
    example, *_ = data.load("train")
    del example.fields["options"][3:]
    batch = collate(reads.encode([example], 64), None, CPU)
    for word, answer in (("film", -1), ("C", 2), ("D", -1)):
        logits = torch.zeros(1, backbone.model.config.vocab_size)
        logits[0, ids(backbone, word)[0]] = 1
        assert reads.decode(BackboneOutput(logits=logits), batch)[0].value == answer


def test_what_a_closed_answer_shows_the_decoder_changes_no_answer(tiny, data_dir):
    """Its input has the right word, behind the place that is read."""
    data, backbone = sst2(data_dir), tiny("t5")
    reads = words(backbone, data, among="vocabulary", closed=True)
    examples = data.load("train")
    swapped = {"negative": "positive", "positive": "negative"}
    others = [replace(e, target=swapped[e.target]) for e in examples]
    assert loss_and_answers(reads, examples)[1] == loss_and_answers(reads, others)[1]
    logits = [read(reads, es)[1].logits.view(6, 3, -1) for es in (examples, others)]
    assert torch.equal(logits[0][:, :2], logits[1][:, :2])
    assert not torch.equal(logits[0][:, 2], logits[1][:, 2])


@pytest.mark.parametrize(
    ("family", "given"),
    [("bert", {}), ("t5", {"sentinel": False}), ("t5", {"among": "labels"})],
)
def test_an_answer_is_closed_only_behind_a_sentinel(tiny, data_dir, family, given):
    data = sst2(data_dir, PATTERN)
    keys = {"readout": "verbalizer", "closed": True, **given}
    with pytest.raises(UserError, match=r"readout\.closed=true changes nothing"):
        readout_for(tiny(family), data, keys, soft=False)


def test_a_word_that_is_several_tokens_is_refused_with_the_other_patterns():
    backbone, data = pocket("pocket_t5"), task("pocket_sentiment")
    long = {"negative": ["bad"], "positive": ["extraordinarily"]}
    with pytest.raises(UserError, match=r"pattern own: label 'positive'.*\n.*manual, manual_end"):
        _ = words(backbone, data, words=long).tokens


@pytest.mark.parametrize(
    ("kind", "among"), [("bert", "labels"), ("bert", "vocabulary"), ("t5", "vocabulary")]
)
def test_a_label_s_words_have_its_weight_and_sentinels_have_1(tiny, data_dir, kind, among):
    data = sst2(data_dir)
    examples = data.load("train")[:5]
    made = words(tiny(kind), data, among=among, class_weights="balanced")
    made.weigh(examples)
    batch, output = read(made, examples)
    each = functional.cross_entropy(made._scores(output, batch), batch.targets, reduction="none")
    own = [made.weights[made.tokens.labels.index(e.target)] for e in examples]
    before = made._before
    weights = [w for weight in own for w in [*[1.0] * before, weight]]
    expected = (each * torch.tensor(weights)).sum()
    assert float(made.loss(output, batch)) == pytest.approx(float(expected), rel=1e-6)
    assert len({*own}) == 2, "the labels are skewed"
