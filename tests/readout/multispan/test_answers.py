"""From tokens' odds to answers: whole words, runs, at least one, nothing twice."""

import math
from random import Random

import pytest

from ptrun.readout.spans import Passage, answers, distinct

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
