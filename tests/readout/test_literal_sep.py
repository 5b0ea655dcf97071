"""A literal "[SEP]" is what a tokenizer makes of that text among others, in one segment."""

from types import SimpleNamespace

import pytest

from ptrun.pattern.pattern import read_pvp
from ptrun.readout.heads import TokenHead
from ptrun.readout.label_words import LabelWords
from ptrun.readout.verbalizer import VerbalizerReading
from ptrun.types import Example
from tests.pattern import tokenizers
from tests.readout.reading import task, words_only

WORDS = {"entailment": ["good"], "contradiction": ["bad"], "neutral": ["dull"]}
PATTERN = {"pattern": "{~premise} || {hypothesis} ? {mask}", "words": WORDS}
EXAMPLE = Example("1", {"premise": "a film", "hypothesis": "the plot"}, "neutral")


def row(tokenizer, pattern=PATTERN, **reading):
    """Return the row of an example of CB."""
    pvp = read_pvp("own", pattern)
    options = VerbalizerReading(**reading)
    made = LabelWords(words_only(tokenizer), task("cb", "none"), pvp, options)
    return made.row(made.pieces(EXAMPLE), 64)


def by_the_released_code(tokenizer, lead, first, last):
    """Return `PVP.encode` of P-tuning: parts are encoded one by one, RoBERTa's after a space."""
    parts = ["a film", *(lead + part for part in ("[SEP]", "the plot", "?"))]
    ids = [tokenizer(part, add_special_tokens=False)["input_ids"] for part in parts]
    marks = tokenizer.convert_tokens_to_ids([first, tokenizer.mask_token, last])
    return [marks[0], *(i for own in ids for i in own), *marks[1:]]


def test_bert_reads_its_separator_in_one_segment():
    tokenizer = tokenizers.bert()
    ours, pair = row(tokenizer, literal_sep=True), row(tokenizer)
    wanted = by_the_released_code(tokenizer, "", "[CLS]", "[SEP]")
    assert ours.ids == wanted == pair.ids and wanted.count(tokenizer.sep_token_id) == 2
    assert set(ours.types) == {0} and set(pair.types) == {0, 1}


def test_roberta_reads_its_text():
    tokenizer = tokenizers.roberta()
    ours, pair = row(tokenizer, literal_sep=True), row(tokenizer)
    assert ours.ids == by_the_released_code(tokenizer, " ", "<s>", "</s>")
    assert ours.ids != pair.ids and ours.ids.count(tokenizer.eos_token_id) == 1
    assert "[SEP]" in tokenizer.decode(ours.ids)


def test_a_pattern_without_a_border_stays_as_it_is():
    one = {**PATTERN, "pattern": "{~premise} {hypothesis} ? {mask}"}
    tokenizer = tokenizers.bert()
    assert row(tokenizer, one, literal_sep=True) == row(tokenizer, one)


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_a_predicate_comes_after_the_word(kind):
    """P-tuning v2 on SRL: `tokens + ["[SEP]"] + [predicate]`, whatever the backbone."""
    tokenizer = getattr(tokenizers, kind)()
    if kind == "roberta":
        tokenizer.backend_tokenizer.pre_tokenizer.add_prefix_space = True
        tokenizer.sep_token = "</s>"
    words = ["the", "film", "was", "good"]
    example = Example("1", {"tokens": words, "predicate": "was"}, ["O", "O", "B-V", "O"])
    data = SimpleNamespace(labels=["O", "B-V"], fields=["tokens"], max_tokens=None, answer="tags")
    data.source_language = data.target_language = None
    head = TokenHead(words_only(tokenizer), data)
    (own,) = head.encode([example], 64)
    head.literal_sep = True
    (ours,) = head.encode([example], 64)
    wanted = tokenizer([*words, "[SEP]", "was"], is_split_into_words=True)["input_ids"]
    assert ours.rows[0].ids == wanted
    assert (ours.rows[0].ids == own.rows[0].ids) is (kind == "bert")
    assert ours.targets == own.targets and ours.rows[0].reads == own.rows[0].reads
