"""`ptrun show`: the page of a run, with commands that are right as they stand."""

import io
import json
import shlex
import shutil
import subprocess
import sys
from html import escape
from itertools import pairwise
from types import SimpleNamespace

import pytest

from ptrun.command.predict import main as predict
from ptrun.command.show import main
from ptrun.config.arguments import COMMANDS, additions
from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.runs.launch import launch
from ptrun.runs.plan import plan

SERVE = [c for c in additions(COMMANDS) if c == "serve"]  # a part that may be absent
TEXTS = ["a 'fine' film", "it was bad", "good; $HOME", "no good"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return a folder with rows in a file and a run on them, and the folder of the run."""
    folder = tmp_path_factory.mktemp("a place")
    rows = "".join(f'"{TEXTS[i % 4]} {i}",{"neg" if i % 2 else "pos"}\n' for i in range(24))
    (folder / "my rows.csv").write_text(f"text,label\n{rows}")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        typed = ["task=csv", "task.text=text", "task.label=label", "train.max_steps=2", "name=own"]
        composed = compose_run([*typed, 'task.train="my rows.csv"', "method=prompt_tuning"])
        done = launch(composed)
    return folder, composed.outputs / "own" / done.run_id


@pytest.fixture
def shown(made, monkeypatch, capsys):
    """Return what shows a run, with its commands by what they do, and the run's folder."""
    monkeypatch.chdir(made[0])

    def shown(*typed):
        main(list(typed))
        text = capsys.readouterr().out
        pairs = pairwise(text.split(":\n    "))
        return text, {a.rpartition("\n")[2].strip(): b.partition("\n")[0] for a, b in pairs}

    return shown, made[1]


def test_the_commands_of_a_page_are_right_as_they_stand(shown, capsys, monkeypatch):
    show, folder = shown
    text, commands = show("prompt_tuning")  # the start of its id
    assert text == show(folder.name)[0] == show(str(folder))[0] == show(folder.name[-8:])[0]
    more = ["predict", "export", "train longer"]
    assert [*commands] == ["this run", "again, and compare", *SERVE, *more]
    same = plan(compose_run(shlex.split(commands["this run"])[1:]))
    assert same.run_id == folder.name and same.folder == folder
    longer = plan(compose_run(shlex.split(commands["train longer"])[1:]))
    assert longer.start.folder == folder and longer.train.max_steps == 4
    assert shlex.split(commands["export"])[3:5] == ["--to", "peft"]
    printing, _, line = commands["predict"].rpartition(" | ")
    rows = subprocess.run(["sh", "-c", printing], capture_output=True, check=True).stdout
    assert json.loads(rows)["text"] in (folder.parents[2] / "my rows.csv").read_text()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(rows)))
    predict(shlex.split(line)[2:])
    assert json.loads(capsys.readouterr().out)["prediction"] in ("pos", "neg")


def test_texts_of_data_that_moved_are_not_shown_until_they_are_named(shown, monkeypatch, tmp_path):
    show, folder = shown
    file, moved = folder.parents[2] / "my rows.csv", tmp_path / "moved.csv"
    assert "\n    text: " in show(str(folder))[0]
    file.rename(moved)
    try:
        text, commands = show(str(folder))
        assert "not read: show" in text and "these files do not exist: task.train=my rows" in text
        assert [*commands] == ["this run", "again, and compare", *SERVE]
        assert "\n    text: " in show(str(folder), f"task.train={moved}")[0]
        moved.write_text(moved.read_text() + "more,pos\n")
        assert "the data have changed" in show(str(folder), f"task.train={moved}")[0]
    finally:
        shutil.copy(moved, file)
        file.write_text(file.read_text().removesuffix("more,pos\n"))


def test_a_run_that_has_not_ended_has_its_page_as_far_as_it_goes(shown):
    show, folder = shown
    place = folder.with_name(folder.name[:-8] + "0" * 8)
    place.mkdir()
    shutil.copy(folder / "run.yaml", place)
    (place / "metrics.jsonl").write_text((folder / "metrics.jsonl").read_text() + '{"event": "st')
    text, commands = show("00000000")
    assert "interrupted before its first save, step 2" in text and [*commands] == ["this run"]
    assert "step 2  accuracy " in text and "loss: " in text and "Worst" not in text
    with pytest.raises(UserError, match="2 runs match"):
        show("prompt")
    shutil.rmtree(place)


def test_a_page_for_a_browser_is_one_file(shown, tmp_path):
    show, folder = shown
    assert show(str(folder), "--html", str(tmp_path / "page.html"))[0] == ""
    text = (tmp_path / "page.html").read_text()
    assert "Worst errors" in text and any(escape(words) in text for words in TEXTS)
    assert text.startswith("<!doctype html>") and "<polyline" in text and "http:" not in text


def test_what_is_no_run_is_refused(shown, tmp_path):
    with pytest.raises(UserError, match=r"show nothing: no such folder, and no run below outputs"):
        shown[0]("nothing")
    with pytest.raises(UserError, match=r"not a run, it has no result.json or failure.json"):
        shown[0](str(tmp_path))
    with pytest.raises(UserError, match=r"holds 1 runs. Give one of them"):
        shown[0](str(shown[1].parent))
