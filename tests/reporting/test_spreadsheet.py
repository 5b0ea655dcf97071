"""Cells that a spreadsheet would run as formulas are text."""

import csv
import io

import pytest

from ptrun.files import safe
from ptrun.predicting.rows import Delimited

FORMULAS = ["=1+1", "+SUM(1)", "-cmd|calc", "@x", "\t=1", "\r=1", '=HYPERLINK("a")']


@pytest.mark.parametrize("text", FORMULAS)
def test_a_formula_begins_with_an_apostrophe(text):
    assert safe(text) == f"'{text}"


@pytest.mark.parametrize("value", ["a=1", "", "-1", "+0.5", "-1e-3", -1, 0.5, None, "é"])
def test_anything_else_stays(value):
    assert safe(value) == value


@pytest.mark.parametrize("raw", [False, True])
def test_labels_of_predictions_too(raw):
    form = Delimited(",", None, raw=raw)
    answers = [({}, {"id": "=cmd|calc", "prediction": "@label", "probability": 0.5})]
    lines = [*csv.reader(io.StringIO("\n".join(form.lines(answers))))]
    start = "" if raw else "'"
    assert lines[1] == [f"{start}=cmd|calc", f"{start}@label", "0.5"]
