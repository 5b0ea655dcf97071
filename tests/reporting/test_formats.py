"""A table in each format is read back as it was, whatever its texts hold."""

import csv
import io
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from rich.console import Console

from ptrun.files import safe
from ptrun.reporting import formats
from ptrun.reporting.formats import Cell, Table

MARKS = "a_*`|<>&#;[](){}!\\~$%^-+=@' \"·±"
texts = st.text(MARKS, min_size=1, max_size=12).map(lambda text: " ".join(text.split()))
HOSTILE = ["</td><script>", "[a](http://b)", "![a](b)", "&lt;i&gt;", "**a** _b_ `c`", "a|b", "\\|"]


def tables(text):
    return Table(
        [{"name": text, "score": Cell("1.5", "green")}], ("name",), title=text, notes=[text]
    )


class Cells(HTMLParser):
    """Keeps the texts of cells and notes."""

    def __init__(self, text):
        super().__init__()
        self.texts, self.tags = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag in ("td", "p"):
            self.texts.append("")

    def handle_data(self, data):
        if self.texts:
            self.texts[-1] += data


@given(texts)
def test_markdown_shows_the_text(text):
    written = formats.markdown(replace(tables(text), notes=()))
    cells = Cells(MarkdownIt().enable(["table", "strikethrough"]).render(written))
    assert [cell.strip() for cell in cells.texts] == [text, "1.5"]
    assert set(cells.tags) <= {"table", "thead", "tbody", "tr", "th", "td"}


@given(texts)
def test_html_shows_the_text(text):
    cells = Cells(formats.html(tables(text)))
    assert [cell.strip() for cell in cells.texts] == [text, "1.5", text]
    assert set(cells.tags) <= {"table", "thead", "tbody", "tr", "th", "td", "p", "span"}


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_text_is_a_text_in_every_format(text):
    test_markdown_shows_the_text.hypothesis.inner_test(text)
    test_html_shows_the_text.hypothesis.inner_test(text)
    out = io.StringIO()
    Console(file=out, width=80).print(tables(text))
    assert text in out.getvalue()


@pytest.mark.parametrize("raw", [False, True])
def test_csv_has_lists_as_json_and_no_formula(raw):
    rows = [{"name": "=1+1", "scores": [1.5, 2.0], "none": None}]
    read = list(csv.reader(io.StringIO(formats.to_csv(rows, raw=raw))))
    assert read == [["name", "scores", "none"], ["=1+1" if raw else safe("=1+1"), "[1.5, 2.0]", ""]]
