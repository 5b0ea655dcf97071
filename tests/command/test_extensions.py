"""Installed packages add commands and kinds of imports by entry points; they replace none."""

import sys

import pytest

from ptrun.cli import _dispatch
from ptrun.command.import_ import kinds
from ptrun.command.import_ import main as import_
from ptrun.config.arguments import commands
from ptrun.errors import UserError
from ptrun.testing import check_command
from tests.packages import install

MODULE = """\
'''Count the rows of a file.

It reads text.
'''
from pathlib import Path
from ptrun.config.arguments import Parser
PARSER = Parser("count", __doc__, "  ptrun count FILE")
PARSER.add_argument("file", type=Path)
def main(arguments):
    print(len(PARSER.parse(arguments).file.read_text().splitlines()))
"""
KINDS = """\
from ptrun.importing.data import MadeFile
from ptrun.importing.kinds import Data
TICKETS = Data("tickets", "added.kinds:files", "Tickets.", "  ptrun import tickets F --out DIR",
               accepts="file", year={"type": int})
def files(source, year):
    return [MadeFile("tickets", "train.jsonl", [source], [{"text": source.read_text(), "y": year}])]
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    def installed(points, **modules):
        files = {"__init__.py": "", **{f"{name}.py": text for name, text in modules.items()}}
        install(tmp_path / "site", monkeypatch, "added", points, files)

    yield installed
    for name in [name for name in sys.modules if name.partition(".")[0] == "added"]:
        del sys.modules[name]


def test_a_command_of_a_package_passes_the_check_of_commands(package, tmp_path):
    package("[ptrun.commands]\ncount = added.count\n", count=MODULE)
    (tmp_path / "rows").write_text("a\nb\n")
    assert check_command("count", str(tmp_path / "rows")).startswith("2\n")
    assert commands()["count"] == "Count the rows of a file."


def test_a_kind_of_import_of_a_package_passes_the_check_of_commands(package, tmp_path):
    package("[ptrun.imports]\ntickets = added.kinds:TICKETS\n", kinds=KINDS)
    (tmp_path / "a.json").write_text("A ticket.")
    line = ["tickets", str(tmp_path / "a.json"), "--out", str(tmp_path / "out"), "--year", "2"]
    assert "train.jsonl: 1 row" in check_command("import tickets", *line[1:])
    written = (tmp_path / "out" / "tickets" / "train.jsonl").read_text()
    assert written == '{"text": "A ticket.", "y": 2}\n' and "tickets" in kinds()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("from pathlib", "import torch\nfrom pathlib"), "imports .*torch"),
        (('"  ptrun count FILE")', '"")\nPARSER.epilog = None'), "shows no examples"),
        (("PARSER.parse(arguments)", "PARSER.parse_known_args(arguments)[0]"), "exit code 0"),
        (('"count", __doc__', '"count", None'), "has no line of count"),
    ],
)
def test_the_check_of_commands_finds_what_is_wrong(package, change, problem):
    package("[ptrun.commands]\ncount = added.count\n", count=MODULE.replace(*change))
    with pytest.raises(AssertionError, match=problem):
        check_command("count", __file__, run=False)


def test_a_package_replaces_no_command_and_no_kind_of_ptrun(package, capsys):
    points = "[ptrun.commands]\nlist = added.count\n[ptrun.imports]\nhf = added.count\n"
    package(points, count=MODULE)
    _dispatch(["list", "hardware"])
    assert "hardware=gpu" in capsys.readouterr().out
    assert commands()["list"].startswith("List the options") and kinds()["hf"].name == "hf"


@pytest.mark.parametrize("text", ["import absent_package\n", "def broken(:\n", "", None])
def test_a_package_that_cannot_be_imported_is_not_listed_and_refused_by_name(package, text):
    modules = {} if text is None else {"count": text}
    package("[ptrun.commands]\ncount = added.count\n[ptrun.imports]\nt = added.count\n", **modules)
    assert "count" not in commands() and "t" not in kinds()
    for attempt in (lambda: _dispatch(["count", "rows"]), lambda: import_(["t", "x"])):
        with pytest.raises(UserError, match="pip install --force-reinstall added, or uninstall"):
            attempt()


def test_a_package_in_the_current_folder_adds_no_command(package, tmp_path, monkeypatch):
    package("[ptrun.commands]\ncount = added.count\n", count=MODULE)
    monkeypatch.chdir(tmp_path / "site")
    with pytest.raises(UserError, match="ptrun count: unknown"):
        _dispatch(["count", "rows"])


def test_tables_of_papers_are_refused_by_name_where_they_are_not_installed(monkeypatch):
    monkeypatch.setattr("ptrun.command.run.load", lambda command: None)
    with pytest.raises(UserError, match=r"experiment=\.\.\.: no installed package has the command"):
        _dispatch(["experiment=dpt/table1"])
