"""`ptrun predict`: a finished run's answers to further rows are those it gave itself."""

import csv
import io
import json
import shutil
import sys
from itertools import islice

import pytest

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.command.predict import main
from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.pocket.tasks import rows
from ptrun.predicting import answering, together
from ptrun.runs.launch import launch

SIZES = {"train": 24, "validation": 8, "test": 12}
SMALL = ["hardware=cpu", "hardware.precision=fp32", "train.max_steps=2", "train.batch_size=4"]
WORDS = ["method=prompt_tuning", "readout=verbalizer"]
RUNS = {
    "head": ["task=pocket_sentiment"],
    "words": ["task=pocket_sentiment", "method=ptuning"],
    "words_gpt2": [*WORDS, "backbone=pocket_gpt2", "readout.pattern=manual_end"],
    "words_glm": [*WORDS, "backbone=pocket_glm", "readout.pattern=manual"],
    "tags": ["task=pocket_ner"],
    "roles": ["task=pocket_srl"],
    "span": ["task=pocket_qa"],
    "spans": ["task=pocket_multispan"],
    "choice": ["task=pocket_choice"],
    "number": ["task=pocket_similarity"],
    "facts": ["task=pocket_facts", "method=ptuning_lama"],
    "tuned": ["task=pocket_pairs", "method=fine_tuning"],
    "generated": ["task=pocket_sentiment", "method=idpg"],
    "several": ["task=pocket_multi", "readout.pooler=none"],
}
for words in ("words_gpt2", "words_glm"):
    RUNS[words].insert(0, "task=pocket_sentiment")
LABELS = ("id", "label", "ner_tags", "srl_tags", "answers", "answer", "obj_label")


def write(file, found):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in found))
    return file


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Return a folder with some rows of each pocket task."""
    root = tmp_path_factory.mktemp("data")
    for task in {"pocket_topics", *(own[0].removeprefix("task=") for own in RUNS.values())}:
        for split, count in SIZES.items() if task != "pocket_multi" else ():
            write(root / task / f"{split}.jsonl", islice(rows(task, split), count))
    return root


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """Return what does a run of those above, once, and returns its folder."""
    outputs, known = tmp_path_factory.mktemp("outputs"), {}

    def train(name, *more):
        if name not in known:
            typed = [*SMALL, f"data_dir={data}", f"outputs={outputs}", *RUNS.get(name, []), *more]
            known[name] = outputs / "runs" / launch(compose_run(typed)).run_id
        return known[name]

    return train


@pytest.fixture(scope="module")
def tables(tmp_path_factory, trained):
    """Return runs on a CSV and the file of its test; the other files are gone."""
    root = tmp_path_factory.mktemp("own")
    for split, name in (("train", "train.csv"), ("test", "new.csv")):
        with (root / name).open("w", newline="") as opened:
            table = csv.writer(opened)
            table.writerow(["id", "review", "stars"])
            for i, row in enumerate(islice(rows("pocket_sentiment", split), SIZES[split])):
                table.writerow([f"r{i}", row["sentence"], 1 + 4 * (row["label"] == "positive")])
    words = 'pattern: "{~review} It was {mask}."\nwords: {"1": [bad], "5": [good]}\n'
    (root / "words.yaml").write_text(words)
    files = [f"task.train={root / 'train.csv'}", f"task.test={root / 'new.csv'}"]
    files += ["task=csv", "task.text=review", "task.label=stars"]
    folders = {
        "csv": trained("csv", *files),
        "csv_words": trained("csv_words", *files, *WORDS, f"task.pattern=@{root / 'words.yaml'}"),
    }
    for gone in ("train.csv", "words.yaml"):
        (root / gone).unlink()
    return folders, root / "new.csv"


@pytest.fixture(scope="module")
def own(tables):
    """Return a run with a head on a CSV, and the file of its test."""
    folders, file = tables
    return folders["csv"], file


def asked(folder, file, capsys, *more):
    """Return the lines that answer a file."""
    capsys.readouterr()
    main([str(folder), "--input", str(file), *map(str, more)])
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def read(file):
    """Return the rows of a file of JSON lines."""
    return [json.loads(line) for line in file.read_text().splitlines()]


def given(folder):
    """Return the answers that the run left, by the number of their row."""
    left = read(folder / "predictions.jsonl")
    return {row["id"].rpartition("-")[2]: row["prediction"] for row in left}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in RUNS if name != "several"])
def test_answers_are_those_of_the_run_without_the_labels(name, trained, data, tmp_path, capsys):
    folder = trained(name)
    test = read(data / RUNS[name][0].removeprefix("task=") / "test.jsonl")
    bare = [{key: row[key] for key in row if key not in LABELS} for row in test]
    lines = asked(folder, write(tmp_path / "new.jsonl", bare), capsys)
    assert [line["id"] for line in lines] == list(range(1, len(test) + 1))
    said, left = {str(line["id"] - 1): line["prediction"] for line in lines}, given(folder)
    assert left and {key: said[key] for key in left} == left
    if name in ("head", "words"):
        assert all(0.5 <= line["probability"] <= 1 for line in lines)
    if name == "choice":
        options = [row["options"] for row in bare]
        assert [line["option"] for line in lines] == [
            own[line["prediction"]] for own, line in zip(options, lines, strict=True)
        ]


@pytest.mark.slow
def test_a_run_over_the_backbone_that_another_tuned_finds_it(trained, data, tmp_path, capsys):
    tuned = trained("tuned")
    folder = trained("over", "task=pocket_pairs", f"start=run:{tuned}", "method.length=3")
    test = data / "pocket_pairs" / "test.jsonl"
    left = list(given(folder).values())
    assert [line["prediction"] for line in asked(folder, test, capsys)] == left
    moved = shutil.move(tuned, tmp_path / "moved")
    with pytest.raises(UserError, match=r"no finished run of this name .*Give a folder"):
        asked(folder, test, capsys)
    lines = asked(folder, test, capsys, f"start=run:{moved}")
    shutil.move(moved, tuned)
    assert [line["prediction"] for line in lines] == left


@pytest.mark.slow
def test_each_data_set_of_several_is_asked_in_its_own_fields(trained, data, tmp_path, capsys):
    folder, test = trained("several"), []
    for task in ("pocket_topics", "pocket_srl", "pocket_ner", "pocket_qa"):  # in any order
        own = read(data / task / "test.jsonl")
        test += [{**row, "id": f"{task}:{row['id']}", "task": task} for row in own]
    lines = asked(folder, write(tmp_path / "new.jsonl", test), capsys)
    left = {row["id"]: row["prediction"] for row in read(folder / "predictions.jsonl")}
    assert {line["id"]: line["prediction"] for line in lines} == left
    test[1]["task"] = "pocket_nir"
    with pytest.raises(UserError, match=r"new.jsonl:2: task is 'pocket_nir'; expected one of"):
        asked(folder, write(tmp_path / "new.jsonl", test), capsys)


@pytest.mark.slow
def test_a_table_is_answered_after_its_training_files_are_gone(
    tables, own, tmp_path, capsys, monkeypatch
):
    for folder in tables[0].values():
        found = asked(folder, tables[1], capsys)
        assert [line["prediction"] for line in found] == list(given(folder).values())
    folder, file = own
    lines = asked(folder, file, capsys)
    assert [line["id"] for line in lines] == [f"r{i}" for i in range(SIZES["test"])]
    assert {line["prediction"] for line in lines} <= {"1", "5"}
    monkeypatch.setattr(together, "_CHUNK", 5)  # whatever rows are read together
    out = tmp_path / "answers.jsonl"
    below = f"outputs={folder.parents[1]}"
    assert asked(folder.name[:-2], file, capsys, "--output", out, below) == []
    assert [line["prediction"] for line in read(out)] == [line["prediction"] for line in lines]
    with pytest.raises(UserError, match=r"the file exists\. Type another name"):
        asked(folder, file, capsys, "--output", out)
    with pytest.raises(UserError, match=r"the folder .* is missing\. Make it first"):
        asked(folder, file, capsys, "--output", tmp_path / "none" / "out")
    assert [f.name for f in tmp_path.iterdir()] == ["answers.jsonl"]


FILES = {
    "id,reviews\n1,fine\n": r"no field 'review'; did you mean 'reviews'\?\n.*: review. Found: id",
    "id,review\n1,fine\n2,\n": r"new.csv:3: field 'review' is empty; fill it in",
}


@pytest.mark.parametrize(("text", "message"), FILES.items())
def test_a_file_that_cannot_be_asked_is_refused_before_anything_is_written(
    text, message, own, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(answering.Finished, "load", None)
    file = tmp_path / "new.csv"
    file.write_text(text)
    with pytest.raises(UserError, match=message):
        asked(own[0], file, capsys, "--output", tmp_path / "out.jsonl")
    assert capsys.readouterr().out == "" and list(tmp_path.iterdir()) == [file]


@pytest.mark.slow
def test_rows_of_other_kinds_are_refused_by_row_and_field(trained, data, tmp_path, capsys):
    fact = {"predicate_id": "P1", "sub_label": "x", "template": "[X] is [Y]"}
    wrong = {
        "head": ({"sentence": None}, r"jsonl:1: field 'sentence' is null"),
        "tags": ({"tokens": "a word"}, r"jsonl:1: field 'tokens' is 'a word'; expected a list"),
        "facts": (fact, r"jsonl:1: relation 'P1' was not learned; the run has"),
    }
    for name, (row, message) in wrong.items():
        with pytest.raises(UserError, match=message):
            asked(trained(name), write(tmp_path / "new.jsonl", [row]), capsys)
    with pytest.raises(UserError, match="no such file"):
        asked(trained("head"), tmp_path / "none.jsonl", capsys)
    with pytest.raises(UserError, match=r"read-out has no probabilities of labels\. Leave out"):
        asked(trained("span"), data / "pocket_qa" / "test.jsonl", capsys, "--top", 2)


OPTIONS = {
    "train.lr=1": "a finished run cannot change this",
    "task=csv": "Allowed: hardware",
    "more": "predict more: no such folder",
    "hardware.tokens=1": "hardware.tokens: unknown",
    "hardware=zero1": "several processes.* Type hardware=gpu or hardware=cpu",
}


@pytest.mark.parametrize(("typed", "message"), OPTIONS.items())
def test_options_that_are_not_of_answering_are_refused(typed, message, own, capsys):
    with pytest.raises(UserError, match=message):
        asked(*own, capsys, typed)


@pytest.mark.slow
def test_a_backbone_elsewhere_is_the_same_if_its_weights_are(own, tmp_path, capsys):
    folder, file = own
    there = PretrainedBackbone(name="x", shipped="pocket_bert").folder
    shutil.copytree(there, tmp_path / "moved")
    same = asked(folder, file, capsys, f"backbone.path={tmp_path / 'moved'}")
    assert same == asked(folder, file, capsys)
    config = json.loads((tmp_path / "moved" / "config.json").read_text())
    (tmp_path / "moved" / "config.json").write_text(json.dumps({**config, "type_vocab_size": 3}))
    with pytest.raises(UserError, match="made with backbone pocket_bert"):
        asked(folder, file, capsys, f"backbone.path={tmp_path / 'moved'}")


def test_what_is_no_finished_run_is_told(own, tmp_path, capsys):
    folder, file = own
    copy = shutil.copytree(folder, tmp_path / "copy")
    done = json.loads((copy / "result.json").read_text())
    (copy / "result.json").unlink()
    with pytest.raises(UserError, match="has not ended"):
        asked(copy, file, capsys)
    del done["digest"]  # it would tell
    failed = {**done, "status": "failed", "reason": "loss is nan"}
    (copy / "failure.json").write_text(json.dumps(failed))
    with pytest.raises(UserError, match=r"failed \(loss is nan\)"):
        asked(copy, file, capsys)
    (copy / "result.json").write_text(json.dumps(done))
    (copy / "run.yaml").unlink()
    with pytest.raises(UserError, match=r"run.yaml: missing"):
        asked(copy, file, capsys)


def test_standard_input_is_read_as_json_lines(trained, data, capsys, monkeypatch):
    folder, file = trained("head"), data / "pocket_sentiment" / "test.jsonl"
    expected = asked(folder, file, capsys)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(file.read_bytes())))
    assert asked(folder, "-", capsys) == expected
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"text": "x"}\n')))
    with pytest.raises(UserError, match=r"^standard input:1: no field 'sentence'"):
        asked(folder, "-", capsys)


def test_a_tsv_of_plain_quotes_is_read_if_the_user_says_so(trained, tmp_path, capsys):
    file = tmp_path / "new.tsv"
    file.write_text('id\tsentence\n7\t"A film" is not\n8\t"open\n')
    with pytest.raises(UserError, match="--quoting none"):
        asked(trained("head"), file, capsys)
    lines = asked(trained("head"), file, capsys, "--quoting", "none")
    assert [line["id"] for line in lines] == ["7", "8"]


def test_a_run_on_glue_writes_the_file_of_its_server(trained, data, tmp_path, capsys):
    found = list(islice(rows("pocket_sentiment", "train"), 44))
    starts = {"train": 0, "validation": 24, "test": 32}
    for split, first in starts.items():
        own = [
            {**row, "idx": n, "label": int(row["label"] == "positive")}
            for n, row in enumerate(found[first : first + SIZES[split]])
        ]
        write(data / "glue_cola" / f"{split}.jsonl", own)
    folder = trained("glue", "task=glue_cola")
    hidden = [{"sentence": row["sentence"], "idx": n + 40} for n, row in enumerate(found[:5])]
    file = write(tmp_path / "test.jsonl", hidden)
    assert asked(folder, file, capsys, "--submission", tmp_path / "glue" / "mine") == []
    lines = (tmp_path / "glue" / "mine" / "CoLA.tsv").read_text().splitlines()
    numbers = {"unacceptable": 0, "acceptable": 1}
    said = [numbers[line["prediction"]] for line in asked(folder, file, capsys)]
    assert lines == ["index\tprediction", *(f"{40 + n}\t{one}" for n, one in enumerate(said))]
    with pytest.raises(UserError, match="task=pocket_sentiment has no leaderboard file"):
        asked(trained("head"), file, capsys, "--submission", tmp_path)
