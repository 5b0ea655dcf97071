"""Label words through the head: their softmax, the vocabulary's, and where each family reads."""

import math
from dataclasses import replace

import pytest
import torch
import transformers
from torch.nn import functional

from ptrun.backbone.base import BackboneOutput
from ptrun.errors import UserError
from ptrun.pattern.pattern import read_pvp
from ptrun.readout.base import collate
from ptrun.readout.label_words import LabelWords
from ptrun.types import Example
from tests.readings import readout_for
from tests.readout.reading import CPU, loss_and_answers, pocket, read, task
from tests.small_runs import sst2

TWO = {"negative": ["bad", "dull"], "positive": ["good", "bright"]}
ONE = {"negative": ["bad"], "positive": ["good"]}
PATTERN = "{~sentence} film was {mask}."


def words(backbone, data, pattern=PATTERN, words=ONE, rule="single", **options):
    pvp = read_pvp("own", {"pattern": pattern, "words": words, "rule": rule})
    return LabelWords(backbone, data, pvp, **options)


def ids(backbone, text):
    return backbone.tokenizer()(text, add_special_tokens=False)["input_ids"]


def mask_logits(tiny_folder, batch):
    """Return the library's logits `[K, V]` at the positions read."""
    model = transformers.BertForMaskedLM.from_pretrained(tiny_folder("bert")).eval()
    types = {"token_type_ids": batch.types}
    with torch.no_grad():
        all_ = model(input_ids=batch.ids, attention_mask=batch.mask.long(), **types).logits
    return all_[batch.reads.rows, batch.reads.columns]


def direct(reads, examples, logits, scores):
    """Check loss and answers against label scores `[B, C]` computed by hand."""
    labels = list(reads.pvp.words)
    targets = torch.tensor([labels.index(e.target) for e in examples])
    loss, answers = loss_and_answers(reads, examples)
    assert abs(loss - float(functional.cross_entropy(scores, targets))) < 1e-5
    assert answers == [labels[i] for i in scores.argmax(dim=-1)]


def test_a_label_scores_the_mean_logit_of_its_words(tiny, tiny_folder, data_dir):
    data, backbone = sst2(data_dir), tiny()
    reads, examples = words(backbone, data, words=TWO), data.load("train")
    logits = mask_logits(tiny_folder, read(reads, examples)[0])
    columns = [logits[:, ids(backbone, " ".join(own))].mean(dim=1) for own in TWO.values()]
    direct(reads, examples, logits, torch.stack(columns, dim=1))


def test_the_first_token_of_a_long_word_stands_for_it(tiny, tiny_folder, data_dir):
    data, backbone = sst2(data_dir), tiny()
    long = {"negative": ["baddull"], "positive": ["goodish"]}
    reads, examples = words(backbone, data, words=long, rule="first"), data.load("train")
    logits = mask_logits(tiny_folder, read(reads, examples)[0])
    first = [ids(backbone, own[0])[0] for own in long.values()]
    direct(reads, examples, logits, logits[:, first])


def test_every_token_of_a_long_word_has_a_mask(tiny, tiny_folder, data_dir):
    data, backbone = sst2(data_dir), tiny()
    long = {"negative": ["bad"], "positive": ["goods"]}
    pattern = PATTERN.replace("mask", "masks")
    reads = words(backbone, data, pattern, long, "mean")
    examples = data.load("train")
    batch = read(reads, examples)[0]
    assert len(batch.reads.rows) == 2 * len(examples)
    logits = mask_logits(tiny_folder, batch).view(len(examples), 2, -1)
    good = ids(backbone, "goods")
    positive = (logits[:, 0, good[0]] + logits[:, 1, good[1]]) / 2
    negative = logits[:, 0, ids(backbone, "bad")[0]]
    direct(reads, examples, logits, torch.stack([negative, positive], dim=1))


def test_letters_go_no_further_than_the_options(tiny, data_dir):
    """One question of four options and one of two, D the likeliest letter of all."""
    data, backbone = task("race_middle", data_dir), tiny()
    pvp = read_pvp("own", {"pattern": "{question}{options|letters} The film is {mask}"})
    reads, examples = LabelWords(backbone, data, pvp), data.load("train")[:2]
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
    reads, (example, *_) = LabelWords(backbone, data, pvp, among="vocabulary"), data.load("train")
    del example.fields["options"][3:]
    batch = collate(reads.encode([example], 64), None, CPU)
    for word, answer in (("film", -1), ("C", 2), ("D", -1)):
        logits = torch.zeros(1, backbone.model.config.vocab_size)
        logits[0, ids(backbone, word)[0]] = 1
        assert reads.decode(BackboneOutput(logits=logits), batch)[0].value == answer


@pytest.mark.parametrize(
    ("pattern", "asked"),
    [(PATTERN, True), (PATTERN, False), ("{~sentence} film was", True)],
    ids=["marked", "unmarked", "lm_adapted"],
)
def test_t5_learns_the_sentinel_and_the_word_as_the_library_does(
    tiny, tiny_folder, data_dir, pattern, asked
):
    """PPT section 2: decoder input [start, sentinel], labels [sentinel, word], answer at 1."""
    data, backbone = sst2(data_dir), tiny("t5")
    reads = words(backbone, data, pattern, among="vocabulary", sentinel=asked)
    sentinel = asked and pattern == PATTERN
    examples = data.load("train")
    batch = read(reads, examples)[0]
    mark = [backbone.tokenizer().mask_token_id] if sentinel else []
    wanted = torch.tensor([[*mark, ids(backbone, ONE[e.target][0])[0]] for e in examples])
    model = transformers.T5ForConditionalGeneration.from_pretrained(tiny_folder("t5")).eval()
    with torch.no_grad():
        theirs = model(input_ids=batch.ids, attention_mask=batch.mask.long(), labels=wanted)
    loss, answers = loss_and_answers(reads, examples)
    assert batch.targets.tolist() == wanted.flatten().tolist()
    assert abs(loss - float(theirs.loss)) < 1e-5
    said = backbone.tokenizer().convert_ids_to_tokens(theirs.logits[:, -1].argmax(dim=-1))
    names = {"bad": "negative", "good": "positive"}
    assert answers == [names.get(word, word) for word in said]
    assert (batch.ids == backbone.tokenizer().mask_token_id).any() == sentinel


def test_a_left_to_right_model_is_read_at_the_token_before_the_answer():
    backbone, data = pocket("pocket_gpt2"), task("pocket_sentiment")
    reads = words(backbone, data, "{~sentence} It was {mask}", among="labels")
    examples = data.load("train")[:5]
    batch, output = read(reads, examples, room=128)
    model = transformers.GPT2LMHeadModel.from_pretrained(backbone.folder, dtype=torch.float32)
    for row, logits in zip(batch.rows, output.logits, strict=True):
        with torch.no_grad():
            last = model(input_ids=torch.tensor([row.ids])).logits[0, -1]
        torch.testing.assert_close(logits, last, atol=1e-4, rtol=1e-4)
        assert row.reads == [len(row.ids) - 1]


@pytest.mark.parametrize("name", ["pocket_bert", "pocket_gpt2", "pocket_t5", "pocket_glm"])
@pytest.mark.parametrize("among", ["labels", "vocabulary"])
def test_others_in_the_batch_change_nothing(name, among):
    backbone, data = pocket(name), task("pocket_sentiment")
    reads = words(backbone, data, "{~sentence} It was {mask}", among=among)
    examples = sorted(data.load("train")[:6], key=lambda e: len(e.fields["sentence"]))
    together = loss_and_answers(reads, examples)
    alone = [loss_and_answers(reads, [e]) for e in examples[::-1]][::-1]
    assert together[1] == [own[0] for _, own in alone]
    assert abs(together[0] - sum(loss for loss, _ in alone) / 6) < 1e-4


def test_a_closed_target_ends_in_the_next_sentinel_as_the_library_learns_it():
    """PPT section 2, pre-training: labels [sentinel 0, word, sentinel 1], mean over the three."""
    backbone, data = pocket("pocket_t5"), task("pocket_sentiment")
    reads, plain = (words(backbone, data, among="vocabulary", closed=c) for c in (True, False))
    examples = data.load("train")[:5]
    batch = read(reads, examples)[0]
    ends = backbone.tokenizer().convert_tokens_to_ids(["<extra_id_0>", "<extra_id_1>"])
    wanted = [[ends[0], ids(backbone, ONE[e.target][0])[0], ends[1]] for e in examples]
    assert batch.targets.view(-1, 3).tolist() == wanted
    model = transformers.T5ForConditionalGeneration.from_pretrained(backbone.folder)
    with torch.no_grad():
        theirs = model.float()(batch.ids, batch.mask.long(), labels=torch.tensor(wanted)).loss
    loss, answers = loss_and_answers(reads, examples)
    assert abs(loss - float(theirs)) < 1e-5
    assert answers == loss_and_answers(plain, examples)[1]


@pytest.mark.parametrize("closed", [True, False])
def test_equal_logits_cost_the_logarithm_of_the_vocabulary(tiny, data_dir, closed):
    """Every target weighs the same, the sentinels' too, so the mean is ln V whatever they are."""
    data, backbone = sst2(data_dir), tiny("t5")
    reads = words(backbone, data, among="vocabulary", closed=closed)
    batch = collate(reads.encode(data.load("train"), 64), None, CPU)
    size = backbone.model.config.vocab_size
    output = BackboneOutput(logits=torch.zeros(len(batch.targets), size))
    mean = reads.loss(output, batch) / len(batch.targets)
    assert len(batch.targets) == 6 * (2 + closed) == len(batch.reads.rows)
    assert abs(float(mean) - math.log(size)) < 1e-5


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
    made = words(tiny(kind), data, among=among, weights="balanced")
    made.weigh(examples)
    batch, output = read(made, examples)
    each = functional.cross_entropy(made._scores(output, batch), batch.targets, reduction="none")
    own = [made.class_weights[made.tokens.labels.index(e.target)] for e in examples]
    before = made._before
    weights = [w for weight in own for w in [*[1.0] * before, weight]]
    expected = (each * torch.tensor(weights)).sum()
    assert float(made.loss(output, batch)) == pytest.approx(float(expected), rel=1e-6)
    assert len({*own}) == 2, "the labels are skewed"
