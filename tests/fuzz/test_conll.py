"""Column files: entities in any scheme come back as IOB2, and any text is read or refused."""

import json
from itertools import pairwise

from hypothesis import assume, example, given
from hypothesis import strategies as st
from seqeval.metrics.sequence_labeling import get_entities

from ptrun.importing import conll
from ptrun.importing.conll import roles, sentences, tags
from ptrun.importing.data import TaggingFields
from tests.fuzz.strategies import TEXTS, read_or_refused, spoilt

WORDS = st.text(st.characters(exclude_characters=" \t\n\r", exclude_categories=["Cs"]), min_size=1)
KINDS = st.sampled_from(["PER", "LOC", "C-A1", "R-A0", "X"])
CELLS = st.sampled_from(["O", "B-PER", "I-PER", "I-LOC", "(A0*", "*)", "*", "(V*)", "(PER)", "-"])
LINES = st.lists(CELLS | TEXTS, max_size=5).map(" ".join)
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


def iob2(size, spans):
    found = ["O"] * size
    for kind, first, last in spans:
        found[first : last + 1] = [f"B-{kind}", *[f"I-{kind}"] * (last - first)]
    return found


def iob1(size, spans):
    """Write `B-` only between two entities of a type that touch."""
    found = [tag.replace("B-", "I-", 1) for tag in iob2(size, spans)]
    for (kind, _, last), (other, first, _) in pairwise(spans):
        if kind == other and first == last + 1:
            found[first] = f"B-{kind}"
    return found


def brackets(size, spans):
    found = ["*"] * size
    for kind, first, last in spans:
        found[first] = f"({kind}{found[first]}"
        found[last] += ")"
    return found


@given(tagged(), st.sampled_from([iob1, iob2, brackets]), st.sampled_from(" \t"), st.booleans())
@example((["\x85"], []), iob2, " ", False)
@example((["#doc"], []), iob2, " ", False)
def test_entities_come_back_in_any_scheme(place, sentence, scheme, separator, twice):
    words, spans = sentence
    lines = [separator.join(pair) for pair in zip(words, scheme(len(words), spans), strict=True)]
    assume(not any(line.startswith(("-DOCSTART-", "#begin", "#end", "#doc")) for line in lines))
    file = place / "c.txt"
    text = "\n".join(lines) + "\n"
    file.write_text(f"{text}\n\n{text}" if twice else text, newline="")
    read = list(sentences(file))
    assert [one.column(1) for one in read] == [words] * (1 + twice)
    for one in read:
        assert tags(one, -1) == iob2(len(words), spans)
        assert get_entities(tags(one, 2)) == [tuple(span) for span in spans]


@given(tagged(), st.data())
def test_roles_come_back(place, sentence, data):
    words, spans = sentence
    at = data.draw(st.integers(0, len(words) - 1))
    free = [span for span in spans if not span[1] <= at <= span[2]]
    column = brackets(len(words), sorted([*free, ("V", at, at)], key=lambda span: span[1]))
    file = place / "r.txt"
    lines = [f"x {word} {cell}" for word, cell in zip(words, column, strict=True)]
    file.write_text("\n".join(lines) + "\n", newline="")
    ((found, given_tags),) = roles(next(sentences(file)), 3, 3)
    assert found == at and given_tags[at] == "B-V"
    assert {span for span in map(tuple, get_entities(given_tags))} == {*free, ("V", at, at)}


SHAPES = st.builds(
    conll.Columns,
    st.integers(-3, 3),
    st.integers(-3, 3),
    st.none() | st.tuples(st.integers(-4, 4), st.integers(-4, 4)),
)
TASKS = st.builds(
    TaggingFields,
    st.just("t"),
    st.just({"train": "train"}),
    st.just("words"),
    st.just("tags"),
    st.sampled_from([None, "verb"]),
    st.sampled_from([None, ["PER", "LOC"]]),
)


def imported(source, columns, fields):
    return [list(conll.rows(columns, source, fields))]


@given(spoilt(FILES.map(str.encode)), SHAPES, TASKS)
@example(
    b"9" * 5000 + b" a ||| B-V", conll.Columns(), TaggingFields("t", {"train": "x"}, "w", "t", "v")
)
@example(b"0 \x00 ||| O", conll.Columns(), TaggingFields("t", {"train": "x"}, "w", "t", "v"))
@example(b"a (V*)", conll.Columns(roles=(0, 0)), TaggingFields("t", {"train": "x"}, "w", "t", "v"))
def test_any_file_is_read_or_refused(place, content, columns, fields):
    file = place / "train.txt"
    file.write_bytes(content)
    for (rows,) in [read_or_refused(imported, file, columns, fields) or [()]]:
        for row in rows:
            assert len(row[fields.tokens]) == len(row[fields.tags]) > 0
            assert fields.predicate is None or 0 <= row[fields.predicate] < len(row[fields.tokens])
            json.dumps(row, ensure_ascii=False).encode("utf-8")
