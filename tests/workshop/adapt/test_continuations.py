"""Texts and continuations: the layout by hand, every token once, the same from any place."""

from collections import Counter
from itertools import islice

import pytest

from ptrun.readout.base import Features, TokenRow
from workshop.adapt import Adaptation, Continuations, Place, divided


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


def test_a_stream_goes_on_from_any_place_as_if_it_had_not_stopped(corpus, monkeypatch):
    monkeypatch.setattr("workshop.adapt._CHARACTERS", 1000)
    whole = list(islice(source(corpus).after(Place()), 1500))
    assert {place.epoch for place, _ in whole} == {0, 1} and whole[800][0].block > 3
    for at in (0, 1, 437, 882, 1200):
        assert list(islice(source(corpus).after(whole[at][0]), 60)) == whole[at + 1 : at + 61]
    assert list(islice(source(corpus, seed=1).after(Place()), 60)) != whole[:60]
