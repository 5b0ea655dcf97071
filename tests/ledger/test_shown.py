"""The same row in words, as Markdown, CSV, LaTeX and on the terminal."""

import csv
import io
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from ptrun.cli import main
from ptrun.command import report
from ptrun.errors import UserError
from ptrun.ledger.experiment import load, read
from ptrun.ledger.formats import MINUS
from ptrun.ledger.ours import Interval
from ptrun.ledger.paper import latex, markdown, tabular, terminal
from ptrun.ledger.rows import rows
from ptrun.ledger.shown import Shown, duration, gap_text, number, shown, table_name
from tests.ledger.small import TABLE, results

HERE = Path(__file__).parent


@pytest.fixture
def table(tmp_path):
    (tmp_path / "table.yaml").write_text(TABLE)
    results(tmp_path / "outputs")
    experiment = read(tmp_path / "table.yaml")
    return shown(experiment, rows(experiment, tmp_path / "outputs"))


def test_a_table_as_markdown(table):
    assert markdown([table]) == (HERE / "golden.md").read_text(encoding="utf-8")


def test_a_table_as_csv(table):
    text = tabular([table])
    assert text == (HERE / "golden.csv").read_text(encoding="utf-8")
    found = list(csv.DictReader(io.StringIO(text)))
    assert [row["verdict"] for row in found].count("not run") == 2
    assert found[3]["ours_paper_missing"] == "2 4 5" and found[3]["ours_paper_failed"] == "2"


def test_a_table_as_latex_has_nothing_that_latex_would_read(table):
    text = latex([table])
    row = r"PT\_1 & RTE & 71.0 & 70.2 & 74.0 \ensuremath{\pm} 0.8 & -- & +3.0 [1.6, 4.4]"
    assert row in text and r"100 \% \textless{}i\textgreater{}quoted" in text
    assert text.isascii() and text.count(r"\end{longtable}") == 1


def test_a_table_on_the_terminal_has_its_reasons_and_commands_below(table):
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(terminal([table]))
    text = console.export_text()
    assert "not run (2)" in text and "(2) another paper's number, 100 % <i>quoted</i>" in text
    assert "one cell alone: ptrun experiment=made/table1 cell=small.FT.full.CB" in text


def test_a_note_is_marked_where_the_number_stands_and_told_below(table):
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(terminal([table]))
    assert "80.0 (a)" in (text := console.export_text())
    assert "(a) an F1 in the accuracy's column, 100 % <i>sure</i>" in text
    told = r"(a) an F1 in the accuracy's column, 100 \% \textless{}i\textgreater{}sure"
    assert "FT & CB & 80.0 (a) &" in (text := latex([table])) and rf"\noindent {told}" in text
    found = list(csv.DictReader(io.StringIO(tabular([table]))))
    assert [row["note"][:5] for row in found] == ["", "", "an F1", "", "", ""]
    assert (found[2]["value"], found[2]["verdict"]) == ("80.0", "not run")


def test_words():
    assert gap_text(Interval(0.84, -0.31, 1.94), 1) == f"+0.8 [{MINUS}0.3, 1.9]"
    assert (number(5e-05, 5), number(1234567.0, 0)) == (f"5e{MINUS}05", "1,234,567")
    assert [duration(h) for h in (1500.25, 0.5, 0.005)] == ["1,500.2 h", "30 min", "18 s"]
    assert table_name("table4_zh") == "Table 4 (zh)" and table_name("tableA2_lr") == "Table A2 (lr)"
    assert table_name("figure3") == "Figure 3" and table_name("lowresource") == "Lowresource"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--paper", "dtp"], "did you mean 'dpt'"),
        (["--paper", "dpt", "--table", "tabel1"], "did you mean 'table1'"),
        (["--paper", "dpt", "--tabel", "table1"], "unrecognized arguments: --tabel"),
        (["paper=dpt"], "paper=dpt is an option of the command: type --paper dpt"),
        (["outputs", "--paper", "dpt"], "give a folder of results or --paper NAME"),
        (["outputs", "--to", "x"], "--table, --scale, --outputs and --to go with --paper"),
        (["--paper", "dpt", "--best", "3"], "go with a folder of results"),
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


@pytest.mark.parametrize("line", ["--outputs nowhere", "--to taken"])
def test_a_folder_that_cannot_be_is_refused(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").touch()
    with pytest.raises(UserError, match=line):
        report.main(["--paper", "dpt", "--table", "table3", *line.split()])


def test_rows_that_are_one_run_at_a_scale_are_said():
    """ELECTRA base and large are one pocket model."""
    scaled = load("dpt/table1").at("pocket")
    every = rows(scaled, Path("nowhere"))
    alike = [row for row in every if row.cell.key.endswith(".FT.low_resource_10pct.SST-2")]
    ran = [replace(row, honest=SimpleNamespace(value=88.0)) for row in alike]
    told = Shown(scaled, (), "", [SimpleNamespace(row=row) for row in ran], {}).order
    homes = {scaled.home(row.cell) for row in alike}
    assert len(homes) < len(ran) and told.endswith(f"above: {len(ran) - len(homes)}")
    unrun = Shown(scaled, (), "", [SimpleNamespace(row=row) for row in every], {}).order
    assert "above" not in unrun
