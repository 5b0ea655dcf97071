"""Column files: entities in any scheme come back as IOB2, and any text is read or refused."""

import json
from functools import partial
from itertools import pairwise

from hypothesis import assume, example, given
from hypothesis import strategies as st
from seqeval.metrics.sequence_labeling import get_entities

from ptrun.importing.conll import conll
from ptrun.importing.data import TaggingFields
from ptrun.task.source import Account
from tests.fuzz.strategies import TEXTS, read_or_refused, spoilt

SPACES = " \t\n\r\ufeff"  # the last is a mark at the start of a file
WORDS = st.text(st.characters(exclude_characters=SPACES, exclude_categories=["Cs"]), min_size=1)
FIELDS = partial(TaggingFields, "t", {}, "w", "t")
VERBS = FIELDS("v")
KINDS = st.sampled_from(["PER", "LOC", "C-A1", "R-A0", "X"])
CELLS = st.sampled_from(["O", "B-PER", "I-PER", "I-LOC", "(A0*", "*)", "*", "(V*)", "(PER)", "-"])
MARKS = st.sampled_from(["_", "0", "1-2", "|||", "a|O", "word", "tag", "sent_id"])
LINES = st.builds(str.join, st.sampled_from(" \t,"), st.lists(CELLS | MARKS | TEXTS, max_size=5))
FILES = st.lists(LINES | st.just(""), max_size=12).map("\n".join)


@st.composite
def tagged(draw):
    """Draw words and the spans of their entities: (kind, first, last), none overlapping."""
    words = draw(st.lists(WORDS, min_size=1, max_size=8))
    spans, at = [], 0
    while at < len(words):
        size = draw(st.integers(1, 3))
        if draw(st.booleans()) and at + size <= len(words):
            spans.append((draw(KINDS), at, at + size - 1))
        at += size
    return words, spans


def lettered(size, spans, letters="BIIB"):
    """Return tags; the letters are those of the first, inner and last word, and of a lone one."""
    tags = ["O"] * size
    for kind, first, last in spans:
        several = letters[0] + letters[1] * (last - first - 1) + letters[2]
        row = several if first < last else letters[3]
        tags[first : last + 1] = [f"{letter}-{kind}" for letter in row]
    return tags


def iob1(size, spans):
    """Write `B-` only between two entities of a type that touch."""
    tags = lettered(size, spans, "IIII")
    for (kind, _, last), (other, first, _) in pairwise(spans):
        if kind == other and first == last + 1:
            tags[first] = f"B-{kind}"
    return tags


def brackets(size, spans):
    cells = ["*"] * size
    for kind, first, last in spans:
        cells[first] = f"({kind}{cells[first]}"
        cells[last] += ")"
    return cells


LETTERS = [partial(lettered, letters=word) for word in ("BIIB", "IIEE", "BIES", "BILU", "BMES")]


@given(tagged(), st.sampled_from([iob1, brackets, *LETTERS]), st.sampled_from(" \t"), st.booleans())
@example((["\x85"], []), lettered, " ", False)
@example((["#doc", "b"], [("X", 0, 0), ("X", 1, 1)]), LETTERS[1], " ", False)
def test_entities_come_back_in_any_scheme(place, sentence, scheme, separator, twice):
    words, spans = sentence
    assume(not any(word.startswith("-DOCSTART-") for word in words))
    lines = [separator.join(pair) for pair in zip(words, scheme(len(words), spans), strict=True)]
    file = place / "c.txt"
    text = "\n".join(lines) + "\n"
    file.write_text(f"{text}\n\n{text}" if twice else text, newline="")
    for tags in (None, 2):
        rows = [FIELDS().record(s) for s in conll(file, Account(), 1, tags)]
        assert rows == [{"w": words, "t": lettered(len(words), spans)}] * (1 + twice)
        assert all(get_entities(row["t"]) == spans for row in rows)


@given(tagged(), st.data())
def test_roles_come_back(place, sentence, data):
    words, spans = sentence
    at = data.draw(st.integers(0, len(words) - 1))
    free = [span for span in spans if not span[1] <= at <= span[2]]
    column = brackets(len(words), sorted([*free, ("V", at, at)], key=lambda span: span[1]))
    file = place / "r.txt"
    lines = [f"x {word} {cell}" for word, cell in zip(words, column, strict=True)]
    file.write_text("\n".join(lines) + "\n", newline="")
    assert not read_or_refused(lambda: [*conll(file, Account(), words=2, roles=(-5, -5))])
    (roles,) = conll(file, Account(), words=2, roles=(3, 3))
    row = VERBS.record(roles)
    assert row["w"] == words and row["v"] == at and row["t"][at] == "B-V"
    assert set(get_entities(row["t"])) == {*free, ("V", at, at)}


NUMBERS = st.none() | st.integers(-3, 3)
ROLES = st.none() | st.tuples(st.integers(-4, 4), st.integers(-4, 4))
NAMES = [NUMBERS | st.just(name) for name in ("word", "tag", "sent_id")]
SHAPES = st.tuples(*NAMES, ROLES, st.sampled_from([None, "none", "cells", "backslash"]))
TYPES = st.none() | st.just(["PER", "LOC"])
TASKS = st.builds(FIELDS, st.none() | st.just("v"), TYPES, st.booleans())


@given(spoilt(FILES.map(str.encode)), SHAPES, TASKS)
@example(b"9" * 5000 + b" a ||| B-V", (), VERBS)
@example(b"0 \x00 ||| O", (), VERBS)
@example(b"a (V*)", (None, None, None, (0, 0)), VERBS)
def test_any_file_is_read_or_refused(place, content, columns, fields):
    file = place / "train.txt"
    file.write_bytes(content)

    def read():
        return [fields.record(words) for words in conll(file, Account(), *columns)]

    for row in read_or_refused(read) or ():
        assert len(row["w"]) == len(row["t"]) > 0
        assert fields.predicate is None or 0 <= row["v"] < len(row["w"])
        json.dumps(row, ensure_ascii=False).encode("utf-8")
