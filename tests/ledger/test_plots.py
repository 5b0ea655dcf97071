"""Drawings: every seed is there, files stand alone, and curves go over the figure's axis."""

from xml.etree import ElementTree

import pytest

from ptrun.command.report import main
from ptrun.errors import UserError
from ptrun.ledger import paper
from ptrun.ledger import plots as drawing
from ptrun.ledger.experiment import read
from ptrun.ledger.paper import write
from ptrun.ledger.plots import Dot, Path, Scale, plots, ticks
from ptrun.ledger.rows import rows
from ptrun.ledger.shown import shown
from tests.ledger.small import SCORES, TABLE, results
from tests.tiers import package


def table(tmp_path, text=TABLE):
    (tmp_path / "table.yaml").write_text(text)
    results(tmp_path / "outputs")
    experiment = read(tmp_path / "table.yaml")
    return shown(experiment, rows(experiment, tmp_path / "outputs"))


def test_every_seed_is_a_dot(tmp_path):
    drawn = plots(table(tmp_path))
    assert list(drawn) == ["seeds"]
    dots = [mark for mark in drawn["seeds"].marks if isinstance(mark, Dot) and mark.title]
    run = sum(len(own) for (_, protocol), own in SCORES.items() if protocol == "paper")
    assert len(dots) == run + 2, "the mean over tasks has the two seeds that both have"
    assert all(0 < dot.at[0] < drawn["seeds"].width for dot in dots)


def test_a_figure_has_the_papers_curve_dashed_and_ours_solid(tmp_path):
    drawn = plots(table(tmp_path, TABLE + "curve: task\n"))["curves"]
    lines = [m for m in drawn.marks if isinstance(m, Path) and len(m.points) > 1]
    assert any(m.dashed and m.role == "s0" for m in lines)  # fine-tuning, two printed numbers
    assert any(not m.dashed and m.role == "s1" and m.width == 2 for m in lines)


def test_methods_beside_each_other_are_no_curve(tmp_path):
    assert list(plots(table(tmp_path, TABLE + "curve: method\n"))) == ["seeds"]


def test_a_file_is_well_formed_and_needs_nothing(tmp_path):
    text = drawing.svg_file(plots(table(tmp_path))["seeds"])
    root = ElementTree.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert text.count("http") == 1 and "url(" not in text and "var(--c)" in text


@pytest.mark.slow
def test_files_are_written(tmp_path):
    names = write([table(tmp_path)], tmp_path / "report")
    assert names == [
        *("index.html", "ledger.md", "ledger.csv", "ledger.tex"),
        "figures/made-table1-seeds.svg",
    ]
    assert all((tmp_path / "report" / name).stat().st_size for name in names)


@pytest.mark.slow
def test_a_png_is_written_where_it_is_asked_for(tmp_path):
    package("matplotlib")
    own = table(tmp_path)
    drawing.write_png(plots(own)["seeds"], tmp_path / "seeds.png")
    assert (tmp_path / "seeds.png").read_bytes().startswith(b"\x89PNG")
    for asked in (True, False):
        write([own], tmp_path / f"to{asked}", png=asked)
        assert bool([*(tmp_path / f"to{asked}" / "figures").glob("*.png")]) is asked


def test_a_png_without_its_package_or_its_folder_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(paper, "png_possible", lambda: False)
    with pytest.raises(UserError, match=r"needs matplotlib: type pip install 'ptrun\[figures\]'"):
        paper.report("dpt", None, tmp_path, tmp_path / "to", png=True)
    with pytest.raises(UserError, match="--png goes with --to"):
        main(["--paper", "dpt", "--png"])


@pytest.mark.parametrize(("low", "high"), [(91.2, 91.9), (0.0, 100.0), (-0.02, 0.013), (3, 4000)])
def test_ticks_are_few_round_and_within(low, high):
    found = ticks(Scale(low, high, 0, 100))
    assert 3 <= len(found) <= 11 and low <= found[0] and found[-1] <= high
    assert found == sorted(set(found))
