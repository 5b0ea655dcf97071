"""Texts and continuations: the layout by hand, every token once, the same from any place."""

from collections import Counter
from itertools import islice

import pytest

from ptrun.errors import UserError
from ptrun.readout.base import Features, TokenRow
from tests.pattern import tokenizers as make
from workshop.adapt import Adaptation, Continuations, Place, divided, encoder


def numbers(lines):
    return [[int(word) for word in line.split()] for line in lines]


def source(corpus, encode=numbers, sentinel=None, **keys):
    recipe = Adaptation(corpus=str(corpus), **{"length": 4, **keys})
    return Continuations(recipe, encode, 0, sentinel)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """300 documents of three lines, ten tokens, no token twice."""
    file = tmp_path_factory.mktemp("corpus") / "numbers.txt"
    lines = (f"{n}1 {n}2\n{n}3 {n}4 {n}5\n{n}6 {n}7 {n}8 {n}9 {n}0\n\n" for n in range(10, 310))
    file.write_text("".join(lines))
    return file


def test_the_layout_is_that_of_ppts_code():
    marked = Features("", [TokenRow([5, 6, 99], reads=[0, 1, 2], decoder=[1, 99, 7])], [99, 7, 8])
    assert divided([5, 6, 7, 8], 2, start=1, sentinel=99) == marked
    plain = Features("", [TokenRow([5, 6], reads=[0, 1], decoder=[1, 7])], [7, 8])
    assert divided([5, 6, 7, 8], 2, start=1) == plain


def test_an_encoder_reads_no_more_than_511_tokens_and_the_sentinel(tmp_path):
    long = tmp_path / "long.txt"
    long.write_text("\n\n".join(" ".join(map(str, range(n, 2048 + n))) for n in range(1, 60)))
    texts = islice(source(long, sentinel=9, length=512).after(Place()), 200)
    sizes = [len(text.rows[0].ids) for _, text in texts]
    assert max(sizes) <= 512 and min(sizes) < 60 and max(sizes) > 450  # the cut is anywhere


def joined(text):
    (row,) = text.rows
    return tuple(row.ids + text.targets)


def test_every_token_is_read_once_an_epoch_but_those_held_out(corpus):
    made = source(corpus)
    one = [text for place, text in islice(made.after(Place()), 900) if place.epoch == 0]
    kept = made.held_out()
    seen = Counter(token for text in one + kept for token in joined(text))
    every = numbers([corpus.read_text()])[0]
    assert seen == Counter(every) and kept
    assert {len(joined(text)) for text in one} == {2, 4}  # ten tokens a document


def test_another_epoch_cuts_and_orders_otherwise(corpus):
    texts = list(islice(source(corpus).after(Place()), 1800))
    epochs = [[text for place, text in texts if place.epoch == e] for e in (0, 1)]
    assert sorted(map(joined, epochs[0])) == sorted(map(joined, epochs[1][: len(epochs[0])]))
    assert epochs[0] != epochs[1][: len(epochs[0])]


def test_a_stream_goes_on_from_any_place_as_if_it_had_not_stopped(corpus, monkeypatch):
    monkeypatch.setattr("workshop.adapt._CHARACTERS", 1000)
    whole = list(islice(source(corpus).after(Place()), 1500))
    assert {place.epoch for place, _ in whole} == {0, 1} and whole[800][0].block > 3
    for at in (0, 1, 437, 882, 1200):
        assert list(islice(source(corpus).after(whole[at][0]), 60)) == whole[at + 1 : at + 61]
    assert list(islice(source(corpus, seed=1).after(Place()), 60)) != whole[:60]


def test_held_out_texts_are_told_without_their_sentinel(corpus):
    texts = source(corpus, sentinel=9).held_out()
    for text, plain in zip(texts, source(corpus).held_out(), strict=True):
        (row,), (other,) = text.rows, plain.rows
        assert row.ids == [*other.ids, 9] and row.decoder == [0, 9, *other.decoder[1:]]
        assert text.targets == plain.targets and row.reads == [r + 1 for r in other.reads]


def test_a_corpus_without_text_is_refused(tmp_path):
    (tmp_path / "one.txt").write_text("7\n")
    with pytest.raises(UserError, match="no text of two tokens"):
        next(source(tmp_path).after(Place()))
    with pytest.raises(UserError, match="1 document in 100 is held out"):
        source(tmp_path).held_out()


@pytest.mark.slow
@pytest.mark.shared
def test_chinese_lines_are_joined_as_they_are(shared, tmp_path):
    if not (shared / "models" / "tokenizers" / "cpm2").is_dir():
        pytest.skip("shared data: no vocabulary of CPM-2")
    tokenizer = make.real(shared, "cpm2")
    (tmp_path / "zh.txt").write_text("我们去北京。\n天气很好。\n", encoding="utf-8")
    _, text = next(source(tmp_path, encoder(tokenizer), length=64).after(Place()))
    both = [*tokenizer("我们去北京。")["input_ids"], *tokenizer("天气很好。")["input_ids"]]
    assert list(joined(text)) == both and tokenizer.unk_token_id not in both
