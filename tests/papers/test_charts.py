"""Charts: every seed is there, files stand alone and repeat, and curves go over a figure's axis."""

import re
from xml.etree import ElementTree

import pytest

from ptrun.papers import charts, paper
from ptrun.papers.paper import write
from tests.papers.small import SCORES, filled
from tests.tiers import package


@pytest.fixture
def table(tmp_path):
    package("matplotlib")
    return lambda more="": filled(tmp_path, more)


def test_every_seed_is_a_dot_beside_the_papers_number(table):
    drawn = charts.charts(table())
    assert list(drawn) == ["seeds"]
    lines = [line for axes in drawn["seeds"].axes for line in axes.lines]
    dots = [x for line in lines if line.get_marker() == "o" for x in line.get_xdata()]
    run = sum(len(scores) for (_, protocol), scores in SCORES.items() if protocol == "paper")
    assert len(dots) == run + 2, "the mean over tasks has the two seeds that both have"
    assert [line.get_xdata()[0] for line in lines if line.get_marker() == "D"] == [70.1, 71.0, 75.5]


def test_a_figure_has_the_papers_curve_dashed_and_ours_solid(table):
    lines = charts.charts(table("curve: task\n"))["curves"].axes[0].lines
    dashed = [line for line in lines if line.get_linestyle() == "--" and len(line.get_xdata())]
    assert [*dashed[0].get_ydata()][:2] == [70.1, 80.0]  # fine-tuning, two printed numbers
    solid = [line for line in lines if line.get_linestyle() == "-" and len(line.get_xdata())]
    assert {line.get_color() for line in solid} == set(charts.SERIES[:3])


def test_methods_beside_each_other_are_no_curve(table):
    assert list(charts.charts(table("curve: method\n"))) == ["seeds"]


def test_a_file_is_well_formed_repeats_and_needs_nothing(table):
    text, again = (charts.svg(charts.charts(table())["seeds"], "a < b") for _ in range(2))
    root = ElementTree.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg" and text == again
    assert "a &lt; b" in text and "PT_1</text>" in text
    assert "url(" not in re.sub(r"url\(#\w+\)", "", text) and 'href="http' not in text


def test_files_are_written_and_without_matplotlib_a_line_says_so(table, tmp_path, monkeypatch):
    files = ["index.html", "ledger.csv", "ledger.tex"]
    assert write([table()], tmp_path / "to") == [*files, "figures/made-table1-seeds.svg"]
    assert (tmp_path / "to" / "figures" / "made-table1-seeds.svg").stat().st_size
    monkeypatch.setattr(charts, "possible", lambda: False)
    assert write([table()], tmp_path / "to") == files
    told = paper.report("dpt", "table1", tmp_path, tmp_path / "to").plain
    assert "no figures: they need matplotlib, type pip install 'ptrun[figures]'" in told
