"""Options come from where the layout says, the right one is a neighbour."""

from collections import Counter
from itertools import islice

import pytest

from ptrun.config.build import build
from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.papers.corpus import cases
from ptrun.papers.ppt import SIX, UNIFIED, selection_rows, unified_rows
from ptrun.pattern.encoding import Encoder
from ptrun.pattern.pattern import read_pvps
from ptrun.task.source import Row
from tests.papers.ppt.corpora import document, origin
from tests.pattern.tokenizers import real

DOCUMENTS = [document(number, 6 + number % 3) for number in range(1_500)]
LONG = [[f"{number} " + "unbelievably long words " * 300 for _ in range(6)] for number in range(6)]
# options, tokens of a query, of an option, lines of the same document, of each other: PPT's code
OFFICIAL = """
2 400 50 1 0000 | 3 400 50 1 1000 | 4 400 50 1 1100 | 5 400 40 1 1110 | 6 300 40 1 1111
7 250 30 2 1111 | 8 200 30 2 2111 | 9 200 30 2 2211 | 10 150 20 2 2221 | 11 150 20 3 2221
12 150 20 3 2222 | 13 150 20 3 3222 | 14 150 20 3 3322 | 15 150 20 3 3332 | 16 150 20 3 3333
"""


def sources(row):
    """Return the place of the query, of the right option, and of the others."""
    query, options = origin(row["query"]), [origin(option) for option in row["options"]]
    right = options.pop(row["answer"])
    return query, right, options


@pytest.mark.parametrize("told", OFFICIAL.replace("\n", "|").strip("|").split("|"))
def test_the_unified_layout_is_the_official_one(told):
    options, query, option, same, others = told.split()
    found = UNIFIED[int(options)]
    assert found.options == int(options)
    assert (found.query, found.option, found.same) == (int(query), int(option), int(same))
    assert "".join(map(str, found.others)) == others


def test_there_is_a_layout_for_2_to_16_options_and_the_plain_one_has_six():
    assert list(UNIFIED) == list(range(2, 17))
    assert SIX.options == 6


@pytest.mark.parametrize("make", [selection_rows, unified_rows])
@pytest.mark.slow
def test_options_are_where_the_layout_says(make):
    for case in cases(DOCUMENTS, 4, "a seed"):
        for row in make(case):
            (here, place), (there, beside), wrong = sources(row)
            assert here == there and abs(place - beside) == 1
            layout = SIX if make is selection_rows else UNIFIED[len(row["options"])]
            own = [at for number, at in wrong if number == here]
            assert len(own) == layout.same and all(abs(at - place) > 1 for at in own)
            counts = Counter(number for number, _ in wrong if number != here)
            assert sorted(counts.values()) == sorted(filter(None, layout.others))
            assert len({*wrong, (there, beside)}) == layout.options, "no line twice"


def test_numbers_of_options_are_drawn_evenly_a_document():
    """Of 1,500 draws of 15: four standard deviations are 39."""
    made = [next(iter(unified_rows(case))) for case in cases(DOCUMENTS, 4, "a seed")]
    counts = Counter(len(row["options"]) for row in made)
    assert set(counts) == set(UNIFIED) and all(abs(c - 100) < 39 for c in counts.values())


def test_each_place_is_right_equally_often():
    """Of 10,497 questions: four standard deviations are 1.5 %."""
    answers = Counter(
        row["answer"] for case in cases(DOCUMENTS, 4, "s") for row in selection_rows(case)
    )
    assert set(answers) == set(range(6))
    assert all(abs(c / answers.total() - 1 / 6) < 0.015 for c in answers.values())


# PPT's code: the ids of A to P, '.', '?', "The correct one is" and the sentinel in T5's vocabulary
LETTERS = [188, 279, 254, 308, 427, 371, 517, 566, 196, 683, 439, 434, 329, 567, 667, 345]
POINT, ASKS, BEFORE, SENTINEL = 5, 58, [37, 2024, 80, 19], 32099


@pytest.mark.shared
@pytest.mark.parametrize("name", ["nss", "unified"])
@pytest.mark.slow
def test_long_lines_are_cut_to_the_tokens_of_the_official_code(shared, name):
    tokenizer = real(shared, "t5")
    task = build("task", compose_run([f"task=ppt_{name}"]).config["task"], None)
    make = {"nss": selection_rows, "unified": unified_rows}[name]
    for case in islice(cases(LONG, 4, "s"), 6):
        row = next(iter(make(case)))
        layout = SIX if name == "nss" else UNIFIED[len(row["options"])]
        official = [*ids(tokenizer, row["query"])[: layout.query], ASKS]
        for letter, option in zip(LETTERS, row["options"], strict=False):
            official += [letter, POINT, *ids(tokenizer, option)[: layout.option], POINT]
        fields = task.example("1", Row("", row)).fields
        encoded = Encoder(tokenizer).encode(read_pvps(task.pvps)["ppt_pt"].render(fields), 10_000)
        assert encoded.ids == [*official, ASKS, *BEFORE, SENTINEL]


def ids(tokenizer, text):
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def test_a_local_row_may_have_no_limits_but_no_wrong_ones():
    task = build("task", compose_run(["task=ppt_nss"]).config["task"], None)
    row = {"query": "a", "options": ["b", "c"], "answer": 0}
    assert "limits" not in task.example("1", Row("here", row)).fields
    with pytest.raises(UserError, match=r"here: field 'limits' is .* expected tokens by field"):
        task.example("1", Row("here", {**row, "limits": {"query": 0}}))
