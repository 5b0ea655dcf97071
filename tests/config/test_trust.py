"""What a folder of options may do: nothing until the user trusts it, and then what it says."""

import json
import os

import pytest

from ptrun.command import new
from ptrun.command.trust import main
from ptrun.config import trust
from ptrun.config.components import component
from ptrun.config.compose import compose_run
from ptrun.config.paths import options
from ptrun.errors import UserError, warn_once

LINE = ["task=pocket_sentiment", "setting=few_shot_32"]
MINE = "# @package _global_\noutputs: elsewhere\nsetting: {_target_: ptrun.task.setting.Full}\n"


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Return a function that writes a file of options in the current folder; it is not trusted."""
    folder = tmp_path / "above" / "project"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.delenv(trust.TRUST)
    warn_once.cache_clear()

    def write(name, text, root="ptrun_conf"):
        file = folder / root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    return write


def told(caplog, words):
    return [one.getMessage() for one in caplog.records if words in one.getMessage()]


def test_options_count_once_their_folder_or_one_above_is_trusted(project, caplog):
    project("setting/few_shot_32.yaml", MINE)
    project("method/mine.yaml", "_target_: mine.Mine\n")
    for _ in range(2):
        assert compose_run(LINE).config["outputs"] == "outputs"
    (line,) = told(caplog, "is not read")
    assert "ptrun_conf" in line and line.endswith("type: ptrun trust")
    assert os.environ[trust.TRUST] == "0"  # for its workers and ranks
    with pytest.raises(UserError, match=r"'mine.Mine', which is not .*\n.*type: ptrun trust"):
        component("method", "mine.Mine")
    assert "mine" not in options("method")
    main([".."])
    assert compose_run(LINE).config["outputs"] == "elsewhere" and "mine" in options("method")


def test_a_trusted_folder_counts_for_the_classes_that_it_names(project):
    project("method/mine.yaml", "_target_: 'mine.Mine'\n")
    main([])
    with pytest.raises(UserError, match=r"'mine.Mine' cannot be imported"):
        component("method", "mine.Mine")
    with pytest.raises(UserError, match=r"'mine.Other', which is not a method of ptrun"):
        component("method", "mine.Other")


def test_trust_is_listed_and_taken_back(project, capsys):
    main([])
    main([".."])
    assert json.loads((trust.home() / "trusted.json").read_text()) == [
        *map(str, trust.folders()),
    ]
    with pytest.raises(UserError, match=r"ptrun_conf is not in the list. It is below .*above"):
        main(["--remove", "ptrun_conf"])
    main(["--remove"])
    main(["--remove", ".."])
    capsys.readouterr()
    main(["--list"])
    assert capsys.readouterr().out == ""
    with pytest.raises(UserError, match=r"not in the list. See ptrun trust --list"):
        main(["--remove"])
    with pytest.raises(UserError, match="nowhere: no such folder"):
        main(["nowhere"])


@pytest.mark.parametrize("text", ["[1", "[1]", '"/home/me"', '["here"]', "null"])
def test_a_damaged_list_is_named(project, text):
    project("setting/few_shot_32.yaml", MINE)
    main([])
    (trust.home() / "trusted.json").write_text(text)
    with pytest.raises(UserError, match=r"trusted.json: damaged .* type ptrun trust"):
        compose_run(LINE)


def test_a_variable_trusts_every_folder_and_another_folder_of_options(project, monkeypatch, caplog):
    project("setting/few_shot_32.yaml", MINE)
    project("setting/other.yaml", "defaults: [few_shot_32]\n", root="conf")
    monkeypatch.setenv("PTRUN_CONFIG_DIR", "conf")
    assert "other" not in options("setting") and compose_run(LINE)
    assert len(told(caplog, "is not read")) == 2
    monkeypatch.setenv(trust.TRUST, "yes")
    with pytest.raises(UserError, match="PTRUN_TRUST=yes: expected 1"):
        options("setting")
    monkeypatch.setenv(trust.TRUST, "1")
    assert compose_run(LINE).config["outputs"] == "elsewhere" and "other" in options("setting")


def test_the_user_s_own_configuration_counts(project):
    project("setting/few_shot_32.yaml", MINE, root="../../home/ptrun/conf")
    assert compose_run(LINE).config["outputs"] == "elsewhere"


def test_what_ptrun_writes_is_trusted_unless_others_were_there(project, capsys):
    new.main(["method", "mine"])
    assert "trusted " in capsys.readouterr().out and "mine" in options("method")
    main(["--remove"])
    new.main(["method", "other"])
    assert "type: ptrun trust" in capsys.readouterr().out and not trust.folders()


@pytest.mark.parametrize("place", ["home", "below", "classes"])
def test_what_others_may_have_put_there_is_not_trusted(project, capsys, monkeypatch, place):
    if place == "home":
        monkeypatch.setenv("HOME", os.getcwd())
    project(
        "x.yaml" if place == "below" else "x",
        "",
        {"below": "examples/ptrun_conf", "classes": "ptrun_parts"}.get(place, "empty"),
    )
    new.main(["method", "mine"])
    assert "type: ptrun trust" in capsys.readouterr().out and not trust.folders()


def test_a_linked_group_counts(project):
    project("mine.yaml", "_target_: mine.Mine\n", root="elsewhere")
    os.makedirs("ptrun_conf")
    os.symlink(os.path.abspath("elsewhere"), "ptrun_conf/method")
    main([])
    with pytest.raises(UserError, match="mine"):  # it counts, and is not there
        component("method", "mine.Mine")


def test_an_option_is_no_path(project):
    for option in ("../" * 9 + "x", "/tmp/x", "[none,../x]", "${oc.env:HOME}"):
        with pytest.raises(UserError, match=r"unknown\. Allowed: mlflow, none"):
            compose_run([f"tracking={option}"])


def test_what_a_file_replaces_is_said_once(project, caplog):
    project("protocol/honest.yaml", "_target_: ptrun.task.protocol.Honest\nmine: 3\n")
    main([])
    for _ in range(2):
        compose_run(())
    (line,) = told(caplog, "replaces")
    assert "ptrun_conf/protocol/honest.yaml replaces ptrun's own" in line
    assert "mine=3 (was None)" in line


@pytest.mark.parametrize("text", ["a: [", "a: 1\na: 2\n", "\x80"])
def test_a_file_that_is_no_yaml_is_named(project, text):
    project("setting/few_shot_32.yaml", "").write_text(text, encoding="latin-1")
    main([])
    with pytest.raises(UserError, match=r"(few_shot_32.yaml.*not YAML|not UTF-8)"):
        compose_run(LINE)


def test_a_name_with_control_characters_is_no_option(project, caplog):
    project("task/a\x1b[2Jb.yaml", "# X.\n")
    main([])
    assert not any("\x1b" in name for name in options("task"))
    assert "\x1b" not in caplog.text
