"""Words with tags in the user's own table: all forms are read alike; what does not fit is told."""

import json
import logging
from pathlib import Path

import pandas as pd
import pytest
from datasets import ClassLabel, Dataset, Features, List, Value

from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.pocket.tasks import rows
from ptrun.predicting.rows import given
from ptrun.runs.launch import launch
from ptrun.runs.plan import plan
from ptrun.task.own import Own
from ptrun.task.protocol import Honest

NAMES = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
WORDS = [["Ann", "Lee", "left"], ["It's", 'a "c\\d"', "é", "Oslo"], ["Go", "!"]]
TAGS = [["B-PER", "I-PER", "O"], ["O", "O", "O", "B-LOC"], ["O", "O"]]
LABELS = ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]
COLUMNS = {"text": "tokens", "label": "ner_tags"}
NAMED = {"labels": NAMES}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    logging.getLogger("ptrun").propagate = True
    return tmp_path


def data(words=WORDS, tags=TAGS):
    """Return a data set whose tags are numbers of a ClassLabel."""
    numbers = [[NAMES.index(tag) for tag in row] for row in tags]
    features = {"tokens": List(Value("string")), "ner_tags": List(ClassLabel(names=NAMES))}
    return Dataset.from_dict({"tokens": words, "ner_tags": numbers}, Features(features))


def frame(text=lambda x: x):
    return pd.DataFrame({"tokens": [*map(text, WORDS)], "ner_tags": [*map(text, TAGS)]})


def lines(file, tokens, tags):
    pairs = zip(tokens, tags, strict=True)
    text = "".join(json.dumps({"tokens": t, "ner_tags": u}) + "\n" for t, u in pairs)
    Path(file).write_text(text)


def numpy_cells(file):
    """As `datasets` writes lists to a CSV: without commas, and in several lines."""
    data().to_csv(file)


FORMS = {
    "parquet": (lambda f: data().to_parquet(f), {}),
    "arrow": (lambda f: data().save_to_disk(f), {}),
    "json of datasets": (lambda f: data().to_json(f), NAMED),
    "csv of datasets": (numpy_cells, NAMED),
    "json of pandas": (lambda f: frame().to_json(f, orient="records"), {}),
    "csv of pandas": (lambda f: frame().to_csv(f, index=False), {}),
    "csv with JSON": (lambda f: frame(json.dumps).to_csv(f, index=False), {}),
    "csv with plain JSON": (
        *(lambda f: frame(lambda x: json.dumps(x, ensure_ascii=False)).to_csv(f, index=False), {}),
    ),
    "parquet of pandas": (lambda f: frame().to_parquet(f), {}),
    "BIOES": (lambda f: lines(f, WORDS, [["B-PER", "E-PER", "O"], [*"OOO", "S-LOC"], [*"OO"]]), {}),
    "IOB1": (lambda f: lines(f, WORDS, [["I-PER", "I-PER", "O"], [*"OOO", "I-LOC"], [*"OO"]]), {}),
}


@pytest.mark.parametrize("name", FORMS)
def test_every_form_is_read_as_words_and_tags(name):
    write, keys = FORMS[name]
    file = {"arrow": "folder", "json": "a.json", "csv": "a.csv"}.get(name.split()[0], "a.jsonl")
    write(file if "parquet" not in name else "a.parquet")
    task = Own(None, train=file if "parquet" not in name else "a.parquet", **COLUMNS, **keys)
    assert (task.kind, task.metric, task.recognised) == ("tagging", "f1", {"kind": "tagging"})
    assert [*task.labels] == (LABELS if not keys else ["O", *LABELS[3:], *LABELS[1:3]])
    examples = task.load("train")
    assert [e.fields["tokens"] for e in examples] == WORDS
    assert [e.target for e in examples] == TAGS and str(task.accounts["train"]) == "3 rows"


def test_labels_of_words_that_mark_no_spans_are_scored_by_word(caplog):
    lines("a.jsonl", [["The", "cat"], ["It", "sat"]], [["DET", "NOUN"], ["PRON", "VERB"]])
    with caplog.at_level(logging.INFO, "ptrun"):
        task = Own(None, train="a.jsonl", **COLUMNS)
    assert task.kind == "tags" and task.answer == "word_labels" and task.metric == "accuracy"
    assert "a.jsonl: recognised task.kind=tags, words with tags" in caplog.text
    assert task.labels == ["DET", "NOUN", "PRON", "VERB"]
    assert Own(None, train="a.jsonl", metric="macro_f1", **COLUMNS).metric == "macro_f1"
    (asked,) = given([{"tokens": '["A", "dog"]'}], task, {""})
    assert asked.example.fields == {"tokens": ["A", "dog"]}


SPANS = [["B-PER", "O"]] * 3
TWO = [["a", "b"]] * 4
WRONG = {
    "numbers": (TWO, [[1, 0]] * 4, {}, r"0 \(4\), 1 \(4\); .*\n.* order, 'task.labels=\[O,B-PER"),
    "mixed": (
        TWO,
        [*SPANS, ["DET", "O"]],
        {},
        r"DET \(1\), B-PER \(3\), O \(4\);.*\n.*skip=\[DET\]",
    ),
    "IO": (TWO, [["PER", "O"]] * 4, {}, r"O \(4\), PER \(4\); tags of spans .*\n.*task.kind=tags"),
    "no spans": (TWO, [["D", "N"]] * 4, {"kind": "tagging"}, r"D \(4\), N \(4\); tags of spans"),
    "one tag": (TWO, [["O", "O"]] * 4, {}, r"O \(8\); a task has two tags"),
    "unequal": (TWO, [*SPANS, ["O"]], {}, "jsonl:4: 2 words in tokens and 1 tags in ner_tags"),
    "no words": ([*TWO[:3], []], [*SPANS, []], {}, "an empty cell .*, in 1 rows"),
    "empty word": ([*TWO[:3], ["a", " "]], [*SPANS, ["O", "O"]], {}, r"jsonl:4: .*\(tokens\)"),
    "null": ([*TWO[:3], None], [*SPANS, ["O", "O"]], {}, r"jsonl:4: an empty cell \(tokens\)"),
    "null tag": (TWO, [*SPANS, ["O", None]], {}, r"jsonl:4: an empty cell \(ner_tags\)"),
    "a text": ([*TWO[:3], "a b"], [*SPANS, ["O", "O"]], {}, r"'a b'; expected .*\[\"Ann\", \"left"),
    "nested": ([*TWO[:3], [["a"]]], [*SPANS, [["O"]]], {}, "jsonl:4: field 'ner_tags'"),
    "nested words": ([[["a"]]] * 4, [["O", "B-X"]] * 4, {}, "'tokens' is a list"),
    "a pattern": (TWO, SPANS + SPANS[:1], {"pattern": "{tokens} {mask}"}, "leave task.pattern out"),
    "a metric": (TWO, SPANS + SPANS[:1], {"metric": "accuracy"}, "task.kind=tagging has f1"),
    "another kind": (TWO, SPANS + SPANS[:1], {"kind": "regression"}, "'tokens' is a list"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_is_told_with_its_place(name):
    tokens, tags, keys, told = WRONG[name]
    lines("a.jsonl", tokens, tags)
    with pytest.raises(UserError, match=told):
        Own(None, train="a.jsonl", **COLUMNS, **keys).load("train")


def test_named_numbers_may_be_tags_without_types():
    lines("a.jsonl", TWO, [[1, 2]] * 3 + [[0, 1]])
    task = Own(None, train="a.jsonl", **COLUMNS, labels=["O", "B", "I"])
    assert task.load("train")[0].target == ["B-_", "I-_"] and task.labels == ["O", "B-_", "I-_"]


def test_rows_are_left_out_and_counted():
    lines("a.jsonl", [*TWO, [], ["c"], None], [*SPANS, ["O", "DET"], [], ["O"], ["O"]])
    task = Own(None, train="a.jsonl", **COLUMNS, empty="skip", skip=["DET"])
    assert len(task.load("train")) == 4 and task.labels == ["O", "B-PER", "I-PER"]
    left_out = {"ner_tags is DET": 1, "an empty cell": 2}
    assert task.accounts["train"].record() == {"read": 7, "left_out": left_out}


def test_a_tag_that_train_lacks_is_refused_unless_all_are_named():
    lines("a.jsonl", TWO, [*SPANS, ["I-PER", "O"]])
    lines("b.jsonl", TWO[:2], [["B-LOC", "O"], ["I-PER", "O"]])
    keys = {"train": "a.jsonl", "dev": "b.jsonl", **COLUMNS}
    with pytest.raises(UserError, match=r"b.jsonl:1: ner_tags is 'B-LOC', .*\n.*task.labels=\[O,"):
        Own(None, **keys).load("dev")
    assert len(Own(None, **keys, skip=["B-LOC"]).load("dev")) == 1
    assert [e.target for e in Own(None, **keys, labels=NAMES).load("dev")] == [
        ["B-LOC", "O"],
        ["B-PER", "O"],
    ]


def test_dev_and_test_are_carved_and_equal_sentences_stay_together():
    lines("a.jsonl", [[f"w{i // 2}", "x"] for i in range(60)], [["B-PER", "O"], ["O", "O"]] * 30)
    split = Honest().split(Own(None, train="a.jsonl", **COLUMNS), 1)
    parts = [{tuple(e.fields["tokens"]) for e in p} for p in (split.train, split.dev, split.test)]
    assert all(parts) and len(set.union(*parts)) == sum(map(len, parts))


YAML = """\
_target_: ptrun.task.tagging.Tagging
name: mine
version: 1
source: {folder: mine}
splits: {train: train, dev: validation, test: test}
tokens: tokens
tags: ner_tags
entities: [LOC, ORG, PER, WORK]
"""
SMALL = ["train.max_steps=3", "train.batch_size=8", "method=ptuning_v2", "method.length=4"]


@pytest.mark.slow
def test_a_run_equals_that_of_a_file_of_options(monkeypatch):
    monkeypatch.setenv("PTRUN_TRUST", "1")
    Path("ptrun_conf/task").mkdir(parents=True)
    Path("ptrun_conf/task/mine.yaml").write_text(YAML)
    Path("data/mine").mkdir(parents=True)
    typed = []
    for part, split in (("train", "train"), ("dev", "validation"), ("test", "test")):
        few = rows("pocket_ner", split)[:40]
        text = "".join(json.dumps(row) + "\n" for row in few)
        Path(f"data/mine/{split}.jsonl").write_text(text)
        pd.DataFrame(few).to_parquet(f"{part}.parquet")
        typed.append(f"task.{part}={part}.parquet")
    own = ["task=csv", *typed, "task.text=tokens", "task.label=ner_tags"]
    done = [
        launch(compose_run([*line, *SMALL, "hardware=cpu"]))
        for line in (own, ["task=mine", "data_dir=data"])
    ]
    assert done[0].metrics == done[1].metrics and done[0].by_label == done[1].by_label
    named = plan(compose_run([*own, "task.kind=tagging", *SMALL, "hardware=cpu"])).run_id
    assert named == done[0].run_id
