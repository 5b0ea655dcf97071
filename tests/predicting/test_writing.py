"""Answers as JSON lines, and as tables that other programs read."""

import csv
import errno
import io
import json
import os
from pathlib import Path

import pytest

from ptrun.errors import UserError
from ptrun.predicting.rows import Delimited, JsonLines, Question, form_of, lines_to
from ptrun.types import Example

TOP = [{"prediction": "a, b", "probability": 0.75}, {"prediction": "c", "probability": 0.25}]
SHARES = [{"a, b": 0.75, "c": 0.25}, {"a, b": 0.1, "c": 0.9}]
ANSWERS = [
    {"id": 1, "prediction": "a, b", "probability": 0.75, "probabilities": SHARES[0]},
    {"id": "x", "prediction": "c", "probability": 0.9, "probabilities": SHARES[1]},
]


def answered(answers):
    return [(Question(1, Example("1", {}, None), 1, {}), own) for own in answers]


def test_the_suffix_selects_the_form():
    forms = [form_of(name and Path(name), None) for name in (None, "a.jsonl", "a.csv", "a.TSV")]
    assert [type(form) for form in forms] == [JsonLines, JsonLines, Delimited, Delimited]
    assert forms[2].separator == "," and forms[3].separator == "\t"


@pytest.mark.parametrize("separator", [",", "\t"])
def test_a_table_has_a_column_for_each_label_and_for_the_likeliest(separator):
    form = Delimited(separator, 2)
    first, second = ({**ANSWERS[0], "top": TOP}, {**ANSWERS[1], "top": TOP[1:]})
    lines = [*form.lines(answered([first])), *form.lines(answered([second]))]  # two chunks
    rows = list(csv.DictReader(io.StringIO("\n".join(lines)), delimiter=separator))
    assert rows[0] == {
        **{"id": "1", "prediction": "a, b", "probability": "0.75"},
        **{"probability_a, b": "0.75", "probability_c": "0.25"},
        **{"top_1": "a, b", "top_1_probability": "0.75", "top_2": "c", "top_2_probability": "0.25"},
    }
    assert rows[1]["top_1"] == "c" and rows[1]["top_2"] == ""


def test_lists_are_json_in_a_cell():
    tags = ["B-PER", "O", 'a "quote"\nand a line']
    lines = Delimited(",", None).lines(answered([{"id": 1, "prediction": tags}]))
    (row,) = csv.DictReader(io.StringIO("\n".join(lines)))
    assert json.loads(row["prediction"]) == tags


def test_json_lines_hold_the_answers_as_they_are():
    assert [json.loads(line) for line in JsonLines().lines(answered(ANSWERS))] == ANSWERS


def test_answers_of_two_shapes_are_refused_in_a_table():
    form = Delimited(",", None)
    plain = {"id": 1, "prediction": "a"}
    assert len([*form.lines(answered([ANSWERS[0], plain]))]) == 3  # an empty cell
    form = Delimited(",", None)
    with pytest.raises(UserError, match=r"answer 1 has probability.*type --output FILE\.jsonl"):
        list(form.lines(answered([plain, ANSWERS[0]])))


def test_an_interrupt_leaves_no_draft(tmp_path):
    with pytest.raises(KeyboardInterrupt), lines_to(tmp_path / "new") as write:
        write(["a"])
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())


def test_a_disk_that_fills_at_the_end_is_named_and_no_draft_is_left(tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space") as raised, lines_to(tmp_path / "new") as write:
        write(["a"])
    assert raised.value.filename == str(tmp_path / "new") and not list(tmp_path.iterdir())
