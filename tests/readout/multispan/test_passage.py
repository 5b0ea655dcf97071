"""Passages of multi-span questions: what is read, which words an answer has, what was cut."""

from random import Random

import pytest

from ptrun.readout.spans import Passage, TagHead, answers, distinct
from ptrun.task.extraction import Answer
from ptrun.types import Example
from tests.pattern import tokenizers
from tests.readout.reading import task, words_only

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
