"""Tags of every scheme become IOB2; the entities are those that seqeval reads in that scheme."""

import pytest
from seqeval.scheme import BILOU, IOB1, IOB2, IOBES, IOE2, Tokens

from ptrun.task.tag_schemes import iob2, marks_spans
from tests.metrics.corruption import rounds

SCHEMES = {scheme.__name__: scheme for scheme in (IOB1, IOB2, IOE2, IOBES, BILOU)}
LETTERS = {"IOBES": "SBIE", "BILOU": "UBIL", "IOB2": "BBII", "IOE2": "EIIE", "BMES": "SBME"}
"""Of an entity of one word, and of the first, another and the last word."""


def drawn(rng):
    """Return entities as (type, words), some of which touch; None is a word outside."""
    return [(rng.choice(["PER", "LOC", None]), rng.randint(1, 3)) for _ in range(rng.randint(1, 6))]


def written(spans, scheme):
    tags = []
    for place, (kind, size) in enumerate(spans):
        left, right = (spans[i][0] if 0 <= i < len(spans) else None for i in (place - 1, place + 1))
        one, first, middle, last = LETTERS.get(scheme, "IIII")
        if kind and scheme == "IOB1" and kind == left:
            one = first = "B"
        if kind and scheme == "IOE1" and kind == right:
            one = last = "E"
        letters = one if size == 1 else [first, *middle * (size - 2), last]
        tags += [f"{letter}-{kind}" for letter in letters] if kind else ["O"] * size
    return tags


@pytest.mark.parametrize("scheme", [*SCHEMES, "IOE1", "BMES"])
def test_every_scheme_becomes_iob2(scheme):
    for rng in rounds():
        spans = drawn(rng)
        tags, right = written(spans, scheme), written(spans, "IOB2")
        assert iob2(tags) == right and marks_spans(tags)
        if scheme in SCHEMES:
            theirs = Tokens(tags, SCHEMES[scheme]).entities
            assert [(e.start, e.end, e.tag) for e in theirs] == [
                (e.start, e.end, e.tag) for e in Tokens(iob2(tags), IOB2).entities
            ]


def test_a_tag_without_a_type_has_the_type_underscore():
    assert iob2(["B", "I", "O", "I"]) == ["B-_", "I-_", "O", "B-_"]


@pytest.mark.parametrize("tag", ["DET", "PER", "b-per", "B_PER", "B-", "_", "", "X-PER", "B- x"])
def test_labels_that_mark_no_spans(tag):
    assert not marks_spans(["O", tag])
