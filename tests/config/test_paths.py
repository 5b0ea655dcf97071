"""Installed packages add options by an entry point; they replace none and import nothing."""

import logging
import sys

import pytest

from ptrun.command.list import main as listed
from ptrun.config.components import component
from ptrun.config.compose import compose_run
from ptrun.config.paths import conf_dir, options
from ptrun.errors import UserError
from tests.packages import install

CODE = "raise SystemExit('imported')\n"
OURS = "# Theirs.\n_target_: ptrun.task.classification.Classification\nname: theirs\nversion: 1\n"
OURS += "source: {pocket: pocket_sentiment}\nsplits: {train: train, dev: null, test: null}\n"
OURS += "fields: [sentence]\nlabel: label\nlabels: {positive: positive, negative: negative}\n"


@pytest.fixture
def package(tmp_path, monkeypatch):
    def installed(files, value="theirs.conf"):
        points = f"[ptrun.conf]\ntheirs = {value}\n"
        texts = {"__init__.py": CODE, **{f"conf/{name}": text for name, text in files.items()}}
        install(tmp_path / "site", monkeypatch, "theirs", points, texts)

    yield installed
    assert "theirs" not in sys.modules


def test_options_of_a_package_are_listed_and_compose(package, capsys):
    package({"task/theirs.yaml": OURS})
    listed(["task"])
    lines = capsys.readouterr().out.splitlines()
    assert ["task=theirs", "Theirs."] in [line.split() for line in lines]
    parts = compose_run(["task=theirs"]).components()
    assert parts["task"].build(None, None).name == "theirs"


def test_a_package_replaces_no_option_of_ptrun_or_of_the_user(package, tmp_path, monkeypatch):
    package({"task/sst2.yaml": OURS, "task/mine.yaml": OURS})
    own = tmp_path / "project" / "ptrun_conf" / "task" / "mine.yaml"
    own.parent.mkdir(parents=True)
    own.write_text(OURS.replace("name: theirs", "name: mine"))
    monkeypatch.chdir(tmp_path / "project")
    assert options("task")["sst2"] == conf_dir() / "task" / "sst2.yaml"
    assert options("task")["mine"] == own
    assert compose_run(["task=sst2"]).config["task"]["name"] == "sst2"
    assert compose_run(["task=mine"]).config["task"]["name"] == "mine"


def test_a_class_that_a_package_names_is_imported_and_no_other(package):
    package({"task/theirs.yaml": OURS.replace("ptrun.task.classification", "json.nothing")})
    with pytest.raises(UserError, match=r"cannot be imported: No module named 'json.nothing'"):
        compose_run(["task=theirs"]).components()
    with pytest.raises(UserError, match=r"not a task of ptrun. It was not imported"):
        component("task", "theirs.tasks.Other")


def test_a_package_in_the_current_folder_is_not_installed(package, tmp_path, monkeypatch):
    package({"task/theirs.yaml": OURS})
    assert "theirs" in options("task")
    monkeypatch.chdir(tmp_path / "site")
    assert "theirs" not in options("task")


@pytest.mark.parametrize("value", ["theirs.absent", "absent.conf", "__main__", "os.conf"])
def test_a_package_without_its_folder_is_warned_about(package, caplog, value):
    package({}, value)
    with caplog.at_level(logging.WARNING):
        assert "sst2" in options("task")
    assert f"ptrun.conf = theirs:{value}, but has no such folder" in caplog.text
