"""Class words under ELECTRA's own head: rows, scores, loss, order, and what is refused (DPT)."""

import math
from itertools import permutations

import pytest
import torch

from ptrun.backbone.base import BackboneOutput
from ptrun.backbone.registry import family_of
from ptrun.config.build import build
from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.pattern.pattern import read_pvp
from ptrun.readout.base import collate
from ptrun.readout.class_words import ClassWords
from ptrun.readout.original import ClassWordsReading
from ptrun.types import Example
from tests.composing import task_node
from tests.pattern import tokenizers
from tests.readings import readout_for
from tests.readout.reading import CPU, task, words_only
from tests.small_runs import sst2
from tests.tiers import tiered

CLASSED = ["sst2", "sst5", "trec", "ag_news"]
CLASSED += ["imdb", "yelp_polarity", "glue_cola", "dbpedia", "yahoo_topics"]  # of the code alone
TOPICS = {"wide": ["Oslo Rome"], "far": ["xyz"], "near": ["met"]}


def own(tiny, data_dir, words=None, pattern="{~sentence} a plot {words|commas}.", **options):
    words = words or {"negative": ["bad"], "positive": ["good"]}
    return ClassWords(
        tiny("electra"),
        sst2(data_dir),
        read_pvp("own", {"pattern": pattern, "words": words, "rule": "first"}),
        ClassWordsReading(**options),
    )


def said(readout, z):
    """Return a batch of one example a row of z `[B, n]`, and an output with these logits."""
    examples = [Example(str(i), {"sentence": "a film"}, "negative") for i in range(len(z))]
    batch = collate(readout.encode(examples, 64), None, CPU)
    return batch, BackboneOutput(logits=z.reshape(-1, 1))


def test_class_words_stand_after_the_text_in_one_segment(tiny, data_dir):
    readout = own(tiny, data_dir)
    features = readout.encode([Example("1", {"sentence": "Ann saw a film"}, "positive")], 64)[0]
    row, tokens = features.rows[0], readout.backbone.tokenizer()
    assert tokens.decode(row.ids) == "[CLS] Ann saw a film a plot bad, good. [SEP]"
    assert tokens.convert_ids_to_tokens([row.ids[i] for i in row.reads]) == ["bad", "good"]
    assert row.types is None and features.targets == [0, 1]


@pytest.mark.parametrize(("share", "times"), [("mean", 1), ("sum", 3)])
def test_undecided_scores_cost_ln_2_a_class(tiny, data_dir, share, times):
    readout = own(tiny, data_dir, TOPICS, loss=share)
    batch, output = said(readout, torch.zeros(4, 3))
    mean = float(readout.loss(output, batch)) / len(batch.targets)
    assert mean == pytest.approx(times * math.log(2), abs=1e-6)


def test_the_bias_is_the_one_thing_it_can_learn(tiny, data_dir):
    assert not list(own(tiny, data_dir).parameters())
    readout = own(tiny, data_dir, bias=True)
    batch, output = said(readout, torch.zeros(1, 2))
    assert readout.bias.tolist() == [0, 0]
    with torch.no_grad():
        readout.bias[0] = 0.5  # word 0 looks replaced
    assert readout.odds(output, batch).tolist() == [[-0.5, 0]]
    assert readout.decode(output, batch)[0].value == "positive"


@pytest.mark.parametrize("order", [list(p) for p in permutations(TOPICS)])
def test_positions_and_labels_follow_the_order_of_classes(tiny, data_dir, order):
    readout = own(tiny, data_dir, {label: TOPICS[label] for label in order})
    features = readout.encode([Example("1", {"sentence": "a film"}, "far")], 64)[0]
    assert features.targets == [int(label == "far") for label in order]
    firsts = {"wide": "Oslo", "far": "x", "near": "met"}
    ids = [features.rows[0].ids[i] for i in features.rows[0].reads]
    tokens = readout.backbone.tokenizer().convert_ids_to_tokens(ids)
    assert tokens == [firsts[label] for label in order]
    batch, output = said(readout, torch.tensor([[float(label != "near") for label in order]]))
    assert readout.decode(output, batch)[0].value == "near"


def test_a_class_word_the_vocabulary_lacks_is_refused(tiny, data_dir):
    readout = own(tiny, data_dir, {"negative": ["bad"], "positive": ["ÿ"]})
    with pytest.raises(UserError, match="vocabulary does not know 'ÿ'"):
        readout.encode([Example("1", {"sentence": "a film"}, "positive")], 64)


@pytest.mark.parametrize(
    ("kind", "pattern", "message"),
    [
        ("bert", "{~sentence} {words|commas}.", "has no head that detects replaced words"),
        ("electra", "{~sentence} {mask}.", r"own has no \{words\|commas\}"),
        ("electra", "{~sentence} {words|or} {mask}.", r"own has a \{mask\}"),
        ("electra", "{~sentence} {soft} {words|or}.", r"own has \{soft\} slots"),
    ],
)
def test_what_cannot_be_read_is_refused(tiny, data_dir, kind, pattern, message):
    with pytest.raises(UserError, match=message):
        readout_for(tiny(kind), sst2(data_dir, pattern), {"readout": "class_words"}, soft=False)


@pytest.mark.parametrize("name", [*CLASSED, "pocket_sentiment"])
@pytest.mark.slow
def test_the_paper_s_form_comes_first(name):
    made = build("task", task_node(name), None, None)
    backbone = build("backbone", compose_run(["backbone=electra_base"]).config["backbone"])
    assert (
        readout_for(backbone, made, {"readout": "class_words"}, soft=False).pvp.name == "dpt_paper"
    )


@pytest.fixture
def electra_words(shared):
    """Return a stand-in for a backbone that has ELECTRA's vocabulary."""
    made = words_only(tokenizers.real(shared, "bert_uncased"))
    made.shape.positions, made.config = 512, {"model_type": "electra"}
    made.architecture = family_of("", made.config)
    return made


OWN_WORD = {"sst2": "sentiment", "sst5": "label", "imdb": "sentiment", "glue_cola": "label"}
PROMPTS = {
    "dpt_bare": [],  # fs_electra_with_label_*, fs_electra_add_label_*
    "dpt_labels": ["labels", ":"],  # begin_with_labels
    "dpt_labels_line": ["labels", ":", "_"],  # begin_with_labels_and_downline
    "dpt_sentiment": ["sentiment", ":"],  # begin_with_sentiment
    "dpt_official": None,  # begin_with_sentiment_and_downline
}


def released(tokenizer, text, words, prompts, *, reserved):
    """Return tokens and read positions by the rule of DPT's released models."""
    tokens = ["[CLS]", *tokenizer.tokenize(text), "[SEP]", *prompts]
    positions, count = [], len(prompts)
    for word in words:
        positions.append(len(tokens))
        own = tokenizer.tokenize(f"{word} ,")
        tokens += [f"[unused{100 + count + j}]" for j in range(len(own))] if reserved else own
        count += len(own)
    return [*tokens, "[SEP]"], positions


@pytest.mark.shared
@pytest.mark.parametrize("reserved", [False, True])
@pytest.mark.parametrize("pattern", PROMPTS)
@pytest.mark.parametrize(
    "name", tiered(["sst2", "sst5", "trec", "ag_news"], lambda name: name == "sst2")
)
def test_rows_are_those_of_each_of_the_released_models(electra_words, name, pattern, reserved):
    made, tokenizer = task(name), electra_words.tokenizer()
    reading = {"readout": "class_words", "pattern": pattern}
    readout = readout_for(electra_words, made, reading, soft=False)
    readout.reserved = reserved
    text = "a gorgeous , witty film ."
    row = readout.encode([Example("1", {made.fields[0]: text}, made.labels[0])], 128)[0].rows[0]
    own = [OWN_WORD.get(name, "category"), ":", "_"]
    prompts = own if PROMPTS[pattern] is None else PROMPTS[pattern]
    words = [words[0] for words in readout.pvp.words.values()]
    tokens, positions = released(tokenizer, text, words, prompts, reserved=reserved)
    assert tokenizer.convert_ids_to_tokens(row.ids) == tokens and row.reads == positions
    long = Example("1", {made.fields[0]: "so " * 300}, made.labels[0])
    long = readout.encode([long], 128)[0].rows[0]
    after = len(tokens) - positions[0]
    assert len(long.ids) == 128 and long.ids[-after:] == row.ids[-after:]
