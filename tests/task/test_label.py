"""One value, one label; what is doubtful is told with a line that works as it is printed."""

import shlex
from collections import Counter
from decimal import Decimal

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from ptrun.task.label import doubts, label_text, missing, normal, skipping
from ptrun.task.own import Own
from ptrun.task.source import Row

CELLS = [(raw, "pos") for raw in (" pos ", ["pos"], "['pos']", '["pos"]', '{"choices": ["pos"]}')]
CELLS += [("[1.0]", "1"), (1.0, "1"), ("1.000", "1"), ("-0.0", "0"), (Decimal("0.00"), "0")]
CELLS += [(raw, raw) for raw in ("[pos]", "007", "1.10")]
CELLS += [("[]", ""), (None, ""), (True, "true"), ("e\u0301", "\u00e9")]


@pytest.mark.parametrize(("raw", "label"), CELLS)
def test_a_cell_is_read_as_one_label(raw, label):
    assert label_text(Row("a.csv:2", {"label": raw}), "label") == label


WORDS = ["NULL", "null", "NaN", "<NA>", "\\N", "#N/A", "N.A.", "(null)", "NaT", "?", '""', "-"]


@pytest.mark.parametrize("word", [*WORDS, "it's", "a b", 'say "x"', "\\", '\\"', "a,b"])
def test_the_line_that_leaves_a_label_out_works_in_a_shell(word, tmp_path):
    (typed,) = shlex.split(skipping([word]))
    override = OverridesParser.create().parse_override(typed)
    file = tmp_path / "a.csv"
    cell = '"' + word.replace('"', '""') + '"'
    file.write_text(f"text,label\n1,x\n2,y\n3,{cell}\n")
    task = Own(None, train=str(file), text="text", label="label", skip=override.value())
    assert task.labels == ["x", "y"]
    assert task.accounts["train"].record()["left_out"] == {f"label is {normal(word)}": 1}


@pytest.mark.parametrize("word", WORDS)
def test_words_for_no_label_are_named(word):
    assert missing({"x": 5, word: 2}) == [word]


@pytest.mark.parametrize(
    ("labels", "found"),
    [("-1 0 1", ["-1"]), ("-1 neg pos", ["-1"]), ("-100 0 1", ["-100"])]
    + [(labels, []) for labels in ("-1 1", "-1 +1", "-2 -1 0 1")],
)
def test_minus_one_is_a_label_beside_one_and_other_negatives(labels, found):
    assert missing(dict.fromkeys(labels.split(), 5)) == found


def test_lone_and_similar_labels_are_named():
    counts = Counter(["pos"] * 20 + ["Pos"] * 9 + ["1.5", "1.50"] * 4 + ["Response"])
    told = [*doubts("label", counts, by_accuracy=True)]
    assert told == [
        "the labels Response have one row each",
        "the labels 1.5, 1.50, Pos, pos differ only in how they are written and are different",
    ]
