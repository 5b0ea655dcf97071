"""The same row on the terminal, as CSV and LaTeX, and in words."""

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from ptrun.cli import main
from ptrun.command import report
from ptrun.errors import UserError
from ptrun.folder import result
from ptrun.folder.scan import duration
from ptrun.papers.experiment import load
from ptrun.papers.ours import Interval
from ptrun.papers.paper import escaped_latex, latex, tabular, terminal
from ptrun.papers.rows import rows
from ptrun.papers.shown import Shown, gap_text, number, table_name
from ptrun.reporting.formats import MINUS
from ptrun.types import SIGNS
from tests.papers.small import filled


@pytest.fixture
def table(tmp_path):
    return filled(tmp_path)


def test_a_table_as_csv_has_every_number_and_seed(table):
    ran, above, unrun, plotted, mean, quoted = csv.DictReader(io.StringIO(tabular([table])))
    assert (ran["paper"], ran["method"], ran["task"], ran["metric"]) == ("made", "FT", "RTE", "acc")
    assert (ran["value"], ran["std"], ran["seeds"]) == ("70.1", "1.0", "[1, 2, 3, 4, 5]")
    assert (ran["ours_paper_value"], ran["ours_paper_learned"]) == ("70.0", "20480")
    scores = {"1": 70.0, "2": 71.0, "3": 69.0, "4": 70.5, "5": 69.5}
    assert json.loads(ran["ours_paper_scores"]) == scores
    assert float(ran["ours_paper_std"]) == pytest.approx(0.7906, abs=1e-4)
    assert (ran["ours_honest_value"], ran["ours_honest_missing"]) == ("69.5", "[3, 4, 5]")
    ends = [float(ran[name]) for name in ("difference", "low", "high")]
    assert ends == pytest.approx([-0.1, -1.467, 1.267], abs=1e-4)
    assert (above["released"], above["verdict"]) == ("70.2", "above")
    assert unrun["why"] == "ptrun experiment=made/table1 cell=small.FT.full.CB"
    assert unrun["ours_paper_value"] == unrun["low"] == "" and unrun["note"].startswith("an F1")
    assert (plotted["ours_paper_missing"], plotted["ours_paper_failed"]) == ("[2, 4, 5]", "[2]")
    assert plotted["why"] == "the paper plots this point without printing its number"
    assert (mean["ours_paper_value"], mean["ours_paper_hours"]) == ("77.75", "0.0")
    assert (quoted["verdict"], quoted["note"]) == ("not run", "")


def test_runs_that_hardly_learned_have_a_mark_and_a_note(table, tmp_path):
    outputs = tmp_path / "outputs"
    folder = outputs / "made/table1/small.FT.full.RTE/-paper-s1"
    done = result.read(folder)
    rose = {"warnings": [f"{SIGNS[1]} from 1 to 9"]}
    result.write(folder, replace(done, manifest={**done.manifest, **rose}))
    shown = Shown(table.experiment, rows(table.experiment, outputs))
    note = "1 of 5 runs hardly learned (the loss rose)"
    (mark,) = (text.partition(" ")[0] for text in shown.table.notes if text.endswith(note))
    assert str(shown.table.rows[0]["Ours (paper)"]).endswith(f" {mark}")
    assert note in tabular([shown]) and note not in latex([table])


def test_a_table_as_latex_has_nothing_that_latex_would_read(table):
    text = latex([table])
    row = r"PT\_1 & RTE & 71.0 & 70.2 & 74.0 \ensuremath{\pm} 0.8 & -- & +3.0 [1.6, 4.4]"
    assert row in text and r"100 \% \textless{}i\textgreater{}quoted" in text
    assert text.isascii() and text.count(r"\end{longtable}") == 1
    note = r"(1) an F1 in the accuracy's column, 100 \% \textless{}i\textgreater{}sure"
    assert "FT & CB & 80.0 (1) &" in text and rf"\noindent {note}" in text


@given(st.text("a_*`|<>&#;[](){}!\\~$%^-+=@' \"·±", min_size=1, max_size=12))
def test_latex_has_no_mark_of_its_own(text):
    plain = re.sub(r"\\(ensuremath\{\\\w+\}|text\w+\{\}|[&%$#_{}])", "", escaped_latex(text))
    assert not set(plain) & set("\\&%$#_{}^~")


def test_a_table_on_the_terminal_has_notes_reasons_and_commands_below(table):
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(terminal([table]))
    text = console.export_text()
    assert "not run (3)" in text and "(3) another paper's number, 100 % <i>quoted</i>" in text
    assert "80.0 (1)" in text and "(1) an F1 in the accuracy's column, 100 % <i>sure</i>" in text
    assert "one cell alone: ptrun experiment=made/table1 cell=small.FT.full.CB" in text
    assert "2 within, 1 above, 1 not comparable, 2 not run." in text


def test_words():
    assert gap_text(Interval(0.84, -0.31, 1.94), 1) == f"+0.8 [{MINUS}0.3, 1.9]"
    assert (number(5e-05, 5), number(1234567.0, 0)) == (f"5e{MINUS}05", "1,234,567")
    assert [duration(3600 * h) for h in (1500.25, 0.5, 0.005)] == ["1,500.2 h", "30 min", "18 s"]
    assert table_name("table4_zh") == "Table 4 (zh)" and table_name("tableA2_lr") == "Table A2 (lr)"
    assert table_name("figure3") == "Figure 3" and table_name("lowresource") == "Lowresource"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--paper", "dtp"], "did you mean 'dpt'"),
        (["--paper", "dpt", "--table", "tabel1"], "did you mean 'table1'"),
        (["--paper", "dpt", "--tabel", "table1"], "unrecognized arguments: --tabel"),
        (["paper=dpt"], "paper=dpt is an option of the command: type --paper dpt"),
        (["outputs", "--paper", "dpt"], "unrecognized arguments: outputs"),
        (["outputs", "--to", "x"], "unrecognized arguments: --to x"),
        (["--paper", "dpt", "--best", "3"], "unrecognized arguments: --best 3"),
    ],
)
def test_a_wrong_word_is_named(arguments, told):
    with pytest.raises(UserError, match=told):
        report.main(arguments)


def test_a_paper_without_runs_is_told_what_to_type(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["ptrun", "report", "--paper", "dpt", "--table", "table1"])
    main()
    text = capsys.readouterr().out
    assert "not run yet: ptrun experiment=dpt/table1" in text and "91.32" in text
    assert not list(tmp_path.iterdir())


TAKEN = ("--to taken", "ptrun: taken: File exists.")


@pytest.mark.parametrize("line, told", [("--outputs nowhere", "report --outputs nowhere"), TAKEN])
def test_a_folder_that_cannot_be_is_refused(line, told, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").touch()
    command = ["ptrun", "report", "--paper", "dpt", "--table", "table3", *line.split()]
    monkeypatch.setattr("sys.argv", command)
    with pytest.raises(SystemExit):
        main()
    assert told in capsys.readouterr().err


def test_rows_that_are_one_run_at_a_scale_are_said():
    """ELECTRA base and large are one pocket model."""
    scaled = load("dpt/table1").at("pocket")
    every = rows(scaled, Path("nowhere"))
    alike = [row for row in every if row.cell.key.endswith(".FT.low_resource_10pct.SST-2")]
    ran = [replace(row, honest=SimpleNamespace(value=88.0)) for row in alike]
    told = Shown(scaled, ran).order
    homes = {scaled.home(row.cell) for row in alike}
    assert len(homes) < len(ran) and told.endswith(f"above: {len(ran) - len(homes)}")
    unrun = Shown(scaled, every).order
    assert "above" not in unrun
