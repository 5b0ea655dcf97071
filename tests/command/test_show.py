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
import torch

from ptrun.command.predict import main as predict
from ptrun.command.show import main
from ptrun.config.arguments import COMMANDS, additions
from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.predicting.answering import ready
from ptrun.runs.finished import Finished
from ptrun.runs.launch import launch
from ptrun.runs.plan import plan
from tests.tiers import tiered

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


@pytest.fixture(scope="module")
def prompted(tmp_path_factory):
    """Return a function that trains a prompt on a few rows and returns its folder."""
    outputs = tmp_path_factory.mktemp("prompts")

    def run(*typed):
        line = ["task=pocket_sentiment", "setting=few_shot_32", "train.max_steps=1"]
        composed = compose_run([*line, f"outputs={outputs}", *typed])
        done = launch(composed)
        assert done.status == "finished"
        return composed.outputs / composed.name / done.run_id

    return run


def words_of(capsys, folder, *typed):
    """Return the lines of the table as columns, and the text above it."""
    main([str(folder), "--words", *typed])
    text = capsys.readouterr().out
    above, _, table = text.partition("\nvector ")
    return [line.split("'") for line in table.splitlines()[1:] if line], above


@pytest.mark.parametrize(
    "backbone", tiered(["pocket_bert", "pocket_gpt2", "pocket_t5"], "pocket_bert".__eq__)
)
def test_a_prompt_that_starts_as_words_is_near_them(prompted, capsys, monkeypatch, backbone):
    """The table of words is read alone: no other weights are."""
    typed = [f"backbone={backbone}", "readout=verbalizer", "train.lr=1e-7", "method.length=3"]
    folder = prompted("method=prompt_tuning", "start=text:the film plot", *typed)
    monkeypatch.setattr(Finished, "load", None)
    rows, above = words_of(capsys, folder)
    assert [row[0].strip() for row in rows] == [*"111222333"]
    assert [row[1].strip() for row in rows[::3]] == ["the", "film", "plot"]
    distances = [float(row[2].split()[0]) for row in rows]
    assert max(distances[::3]) < 1e-5 and distances == [
        d for i in (0, 3, 6) for d in sorted(distances[i : i + 3])
    ]
    assert all(row[2].split()[1] == "1.00" for row in rows[::3])
    assert "words is 1" in above and "the nearest other word is" in above


@pytest.mark.slow
def test_distances_are_to_the_words_of_the_backbone(prompted, capsys):
    """P-tuning's finished vectors, against the loaded model; an own table if the run tuned it."""
    line = ["method=ptuning", "readout=verbalizer", "train.lr=0.1"]
    for tuned in ("false", "true"):
        folder = prompted(*line, f"method.tune_backbone={tuned}", "keep=weights")
        run = ready(str(folder), [], "show")
        (method,) = run.load().values()
        table = method.backbone.model.get_input_embeddings().weight.detach().float()
        vectors = method.prompt().detach()
        expected = torch.stack([(table - vector).norm(dim=-1) for vector in vectors])
        rows, above = words_of(capsys, folder)
        nearest, ids = expected.topk(3, largest=False)
        assert [row[2].split()[0] for row in rows] == [f"{d:.3g}" for d in nearest.flatten()]
        tokens = method.backbone.tokenizer().convert_ids_to_tokens(ids.flatten().tolist())
        assert [row[1] for row in rows] == tokens
        assert f"is {nearest[:, 0].median():.3g} away" in above


@pytest.mark.parametrize("method", ["ptuning_v2", "lora"])
def test_a_run_without_vectors_among_words_has_none_near(prompted, capsys, method):
    with pytest.raises(UserError, match=f"--words: method={method} learned no vectors among word"):
        words_of(capsys, prompted(f"method={method}"))


def test_words_of_another_backbone_are_refused(prompted, capsys, tiny_folder):
    folder = prompted("method=prompt_tuning", "method.length=2")
    with pytest.raises(UserError, match="made with backbone pocket_bert"):
        words_of(capsys, folder, f"backbone.path={tiny_folder('bert')}")
    with pytest.raises(UserError, match=r"show train.lr=1: a finished run cannot change this"):
        words_of(capsys, folder, "train.lr=1")


def test_what_is_no_run_is_refused(shown, tmp_path):
    with pytest.raises(UserError, match=r"show nothing: no such folder, and no run below outputs"):
        shown[0]("nothing")
    with pytest.raises(UserError, match=r"not a run, it has no result.json or failure.json"):
        shown[0](str(tmp_path))
    with pytest.raises(UserError, match=r"holds 1 runs. Give one of them"):
        shown[0](str(shown[1].parent))
