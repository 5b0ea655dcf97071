"""Own tables as a task: labels, options, ids and the name of a run."""

import json
import logging
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from ptrun.config.compose import compose_run
from ptrun.errors import UserError, warn_once
from ptrun.predicting.rows import given
from ptrun.runs.plan import plan
from ptrun.task.label import skipping
from ptrun.task.own import Own
from ptrun.task.protocol import Honest, Paper
from tests.task.tables import delimited, parquet, reviews


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    logging.getLogger("ptrun").propagate = True
    Path("reviews.csv").write_text(delimited(reviews()))
    return tmp_path


def own(train="reviews.csv", **keys):
    return Own(None, **{"train": train, "text": "text", "label": "label", **keys})


def refused(train="reviews.csv", **keys):
    with pytest.raises(UserError) as raised:
        task = own(train, **keys)
        assert task.labels is not None
        for part in ("train", "dev", "test"):
            task.load(part) if task.has(part) else None
    told = str(raised.value)
    assert len(told.splitlines()) <= 3
    return told


def labelled(values, more=()):
    """Write a text for each value, as JSON, CSV and, where Arrow can, parquet; yield the files."""
    rows = [{"text": f"t{i}", "label": value} for i, value in enumerate([*values, *more])]
    Path("a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    yield "a.jsonl"
    if not any(isinstance(value, list) or '"' in str(value) for value in values):
        rows = [row | {"label": "" if row["label"] is None else row["label"]} for row in rows]
        Path("a.csv").write_text(delimited(rows))
        yield "a.csv"
    try:
        content = parquet({name: [row[name] for row in rows] for name in rows[0]})
    except pa.ArrowException:
        return
    Path("a.parquet").write_bytes(content)
    yield "a.parquet"


FORMS = [1, 1.0, "1", True, "true", " pos ", ["pos"], "['pos']"]
SENTENCES = [f"This is the long answer number {i}." for i in range(9)]
LISTS, REGRESSION = [["a", "b"], ["a"]], {"kind": "regression"}
LABELS = {
    "floats": (["1.0", "0.0"], {}, ["0", "1"]),
    "floats and whole numbers": ([1.0, 0.0, 2.0], {}, ["0", "1", "2"]),
    "spellings of one": (["1.0", "1", "0", "0.00"], {}, ["0", "1"]),
    "words": (["True", "false", "TRUE", "False"], {}, ["false", "true"]),
    "booleans": ([True, False], {}, ["false", "true"]),
    "spaces": ([" a", "b ", "a", "b"], {}, ["a", "b"]),
    "accents": (["caf\u00e9", "cafe\u0301", "x\u200b"], {}, ["café", "x"]),
    "zip codes": (["01", "1"], {}, ["01", "1"]),
    "separators": (["a/b", "c,d"], {}, ["a/b", "c,d"]),
    "lists of one": ([["pos"], ["neg"]], {}, ["neg", "pos"]),
    "all forms": (FORMS, {}, ["1", "pos", "true"]),
    "fractions": ([0.5, 1.5], {}, ["0.5", "1.5"]),
    "skipped": (["a", "b", "nan"], {"skip": ["nan"]}, ["a", "b"]),
    "skipped -1": (["-1", "0", "1"], {"skip": [-1]}, ["0", "1"]),
    "empty": (["", "a", "b", None], {}, "in 2 rows"),
    "empty, skipped": (["", "a", "b", None], {"empty": "skip"}, ["a", "b"]),
    "all empty": (["", ""], {"empty": "skip"}, "no rows are left"),
    "all skipped": (
        *(["x", "y"], {"skip": ["x", "y"]}),
        "no rows are left (2 rows, 1 left out: label is x; 1 left out: label is y)",
    ),
    "one": (["a", "a"], {}, "only one value, 'a'"),
    "numbers of rows": ([*range(30)], {}, "30 different values in 30 rows"),
    "sentences": (SENTENCES, {}, "task.answer=label"),
    "scores": (
        *([i / 7 for i in range(1, 60)], {}),
        "59 different numbers, from 0.142857 to 8.42857.\nFor scores type task.kind=regression",
    ),
    "scores with a comma": (
        *([f"{i / 7:.2f}".replace(".", ",") for i in range(60)], {}),
        "numbers with a comma, as 0,00.\nIf they are decimals",
    ),
    "commas": (["pos,long", "neg,long", "pos", "neg"] * 9, {}, "several labels in a cell"),
    "semicolons": (["a;b", "b;a", "a", "b"] * 9, {}, "several labels in a cell"),
    "bars": (["a|b", "b|c", "a|c", "a|b|c"] * 9, {}, "several labels in a cell"),
    "lists of several": (LISTS, {}, "If rows have several, type task.kind=multilabel"),
    "regression": ([1.5, "2", 0], REGRESSION, []),
    "regression of words": (["neg"], REGRESSION, "label is 'neg'; expected a number"),
    "another metric": ([1], REGRESSION | {"metric": "accuracy"}, "task.kind=regression has"),
}


@pytest.mark.parametrize("name", LABELS)
def test_one_value_is_one_label_in_every_form(name):
    values, keys, told = LABELS[name]
    for file in labelled(values):
        if isinstance(told, str):
            assert told in refused(file, **keys)
        else:
            task = own(file, **keys)
            assert (task.load("train") and list(task.labels)) == told
            account = task.accounts["train"]
            assert account.read == len(values) == len(task.load("train")) + account.left_out.total()


@pytest.mark.parametrize("value", ["nan", "-", "None", "?", "#N/A", "-1"])
def test_a_value_that_may_mean_no_label_is_told_and_can_be_left_out(caplog, value):
    for file in labelled(["a", "b"] * 5 if value != "-1" else ["0", "1"] * 5, [value] * 4):
        caplog.clear()
        assert value in own(file).labels
        assert f"(4 rows) may mean that a row has no label; {skipping([value])}" in caplog.text
        task = own(file, skip=[value])
        assert value not in task.labels
        assert task.accounts["train"].record()["left_out"] == {f"label is {value}": 4}


def test_one_value_is_one_label_in_two_files():
    for value in (1, 1.0, True):
        rows = {"text": ["a", "b"], "label": [value, type(value)(0)]}
        Path("a.parquet").write_bytes(parquet(rows))
        Path("dev.csv").write_text(f"text,label\nx,{value}\ny,{type(value)(0)}\n")
        task = own("a.parquet", dev="dev.csv")
        assert {e.target for e in task.load("dev")} == set(task.labels)


def test_labels_are_inferred_sorted_and_told(caplog):
    with caplog.at_level(logging.INFO, "ptrun"):
        task = own()
        assert task.labels == ["negative", "positive"]
    assert caplog.messages == [
        "reviews.csv: cells separated by comma, header, utf-8; 20 rows",
        "labels: negative (10), positive (10)",
    ]
    examples = task.load("train")
    assert [e.id for e in examples] == [f"train-{i}" for i in range(20)]
    assert examples[1].target == "negative" and examples[0].fields == {"text": reviews()[0]["text"]}


def test_labels_that_train_lacks_are_named_all_at_once():
    Path("dev.csv").write_text("text,label\na,positive\nb,maybe\nc,never\nd,maybe\n")
    assert refused(dev="dev.csv") == (
        "dev.csv:3: label is 'maybe', a label that reviews.csv does not have; it has negative, "
        "positive\nIn 3 rows: correct them, or type 'task.skip=[maybe,never]' to leave them out."
    )
    assert "a label that task.labels does not have" in refused(labels=["negative"])
    task = own(dev="dev.csv", skip=["maybe", "never"])
    assert [e.target for e in task.load("dev")] == ["positive"]


def test_pairs_are_two_texts():
    text = 'premise,hypothesis,y\n"He said ""no"",\nthen left",He left,1\nx,y,0\n'
    Path("pairs.csv").write_text(text)
    task = own("pairs.csv", text=["premise", "hypothesis"], label="y")
    assert task.fields == ["premise", "hypothesis"] and task.labels == ["0", "1"]
    assert task.load("train")[0].fields["premise"] == 'He said "no",\nthen left'
    Path("pairs.csv").write_text(text + "z,,1\n")
    told = refused("pairs.csv", text=["premise", "hypothesis"], label="y")
    assert "pairs.csv:5: an empty cell (hypothesis), in 1 rows" in told


def alpaca():
    """Rows of which three have no input, each in another way, in the forms that people keep."""
    inputs = ["", None, float("nan"), "red, blue"]
    rows = [{"instruction": f"Do {i}", "input": x, "output": "ok"} for i, x in enumerate(inputs)]
    lines = [{k: v for k, v in row.items() if v == v} for row in rows]  # a row lacks the key
    Path("a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
    plain = [row | {"input": row["input"] if row["input"] == "red, blue" else ""} for row in rows]
    Path("a.csv").write_text(delimited(plain))
    pd.DataFrame(rows).to_parquet("a.parquet")
    return rows


ALPACA = {"text": ["instruction", "input"], "answer": "output", "label": None}


def test_a_second_text_before_an_answer_may_be_empty(caplog):
    warn_once.cache_clear()
    rows, read = alpaca(), []
    for file in ("a.jsonl", "a.csv", "a.parquet"):
        task = own(file, **ALPACA)
        read.append([e.fields for e in task.load("train")])
        assert str(task.accounts["train"]) == "4 rows, 3 without input"
        assert task.accounts["train"].record()["noted"] == {"without input": 3}
    assert read[0] == read[1] == read[2]
    assert [fields["input"] for fields in read[0]] == ["", "", "", "red, blue"]
    asked = given([*rows, {"instruction": "Do 2"}], task, {""})
    assert [q.example.fields for q in asked] == [*read[0], read[0][2]]
    with pytest.raises(UserError, match="row 1: field 'instruction' is null"):
        next(given([{"instruction": None, "input": "x"}], task, {""}))
    assert "rows without 'input' are answered as if it were empty" in caplog.text
    with pytest.raises(UserError, match=r"no field .input.; did you mean .inptu."):
        next(given([{"instruction": "Do 2", "inptu": "x"}], task, {""}))
    with pytest.raises(UserError, match=r"an empty cell \(instruction\), in 1 rows"):
        Path("a.csv").write_text("instruction,input,output\n,x,y\n")
        own("a.csv", **ALPACA).load("train")


def test_the_number_zero_is_an_answer():
    Path("a.jsonl").write_text('{"sum": "3 - 3", "is": 0}\n{"sum": "3 - 2", "is": 1}\n')
    task = own("a.jsonl", text="sum", label=None, answer="is")
    assert [e.target for e in task.load("train")] == [["0"], ["1"]]


PAIR = {"text": ["text", "more"], "label": "label"}


def test_fields_in_groups_of_a_pattern_may_be_empty():
    Path("a.csv").write_text("text,more,label\na,,x\nb,c,y\n")
    task = own("a.csv", **PAIR, pattern="{~text}[[ ({more})]] {mask}")
    assert [e.fields["more"] for e in task.load("train")] == ["", "c"]
    assert str(task.accounts["train"]) == "2 rows, 1 without more"
    told = refused("a.csv", **PAIR, pattern="{~text} ({more}) {mask}")
    assert "an empty cell (more), in 1 rows" in told
    assert "put the field into a group of the pattern, [[ {more}]], or type task.empty=skip" in told
    assert "a group" not in refused("a.csv", **PAIR)
    Path("a.csv").write_text("text,more,label\n,,x\nb,c,y\n")
    told = refused("a.csv", **PAIR, pattern="[[{text}]][[ {more}]] {mask}")
    assert "a.csv:2: an empty cell (text), in 1 rows" in told


def test_rows_keep_the_ids_that_their_file_has():
    Path("a.csv").write_text("id,text,label\nr7,fine,yes\n,bad,no\n")
    assert [e.id for e in own("a.csv").load("train")] == ["r7", "train-1"]
    table = parquet({"id": [3, 4], "text": ["x", "y"], "label": ["a", "b"]})
    Path("a.parquet").write_bytes(table)
    assert [e.id for e in own("a.parquet").load("train")] == ["3", "4"]
    Path("b.csv").write_text("id,label\nfine,yes\nbad,no\n")  # `id` is the text
    assert [e.id for e in own("b.csv", text="id").load("train")] == ["train-0", "train-1"]


def test_rows_that_prodigy_rejects_are_left_out():
    answers = ["accept", "accept", "reject", "ignore"] * 5
    rows = [row | {"answer": answer} for row, answer in zip(reviews(), answers, strict=True)]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    Path("a.jsonl").write_text(lines)
    task = own("a.jsonl")
    assert len(task.load("train")) == 10
    left_out = {"answer is reject": 5, "answer is ignore": 5}
    assert task.accounts["train"].record() == {"read": 20, "left_out": left_out}
    assert len(own("a.jsonl", label="answer").load("train")) == 20
    Path("a.jsonl").write_text(lines.replace('"ignore"', '"maybe"'))
    assert len(own("a.jsonl").load("train")) == 20


WRONG = {
    "no file": ({"train": None}, ["no training file", "task.train=FILE"]),
    "no text": ({"text": None}, ["task.text", "columns: text, label", "task.text=[COLUMN,COLUMN]"]),
    "three texts": ({"text": ["a", "b", "c"]}, ["task.text", "columns: text, label"]),
    "no label": ({"label": None}, ["task.label", "columns: text, label"]),
    "twice": ({"label": "text"}, ["task.text=text and task.label=text", "columns: text, label"]),
    "one setting's files": ({"variant": "fewglue"}, ["setting=fewglue", "setting=full"]),
    "answer and label": ({"answer": "text"}, ["task.label=label task.answer=text"]),
    "messages too": ({"messages": "text"}, ["task.messages=text is a whole conversation"]),
    "labels of one": ({"label": ["a", "b"]}, ["expected one column", "task.kind=multilabel"]),
}


@pytest.mark.parametrize(("keys", "told"), WRONG.values(), ids=WRONG)
def test_a_wrong_option_is_explained(keys, told):
    message = refused(**keys)
    assert all(words in message for words in told), message


def test_honest_carves_what_is_not_given():
    alone = Honest().split(own(), 1)
    parts = [alone.train, alone.dev, alone.test]
    assert [len(part) for part in parts] == [12, 3, 5]
    assert len({e.id for part in parts for e in part}) == 20
    shares = {
        part: f"{share}% of each class of train" for part, share in (("dev", 20), ("test", 25))
    }
    assert alone.origin == shares
    dev = Honest().split(own(dev="reviews.csv"), 1)
    assert [len(dev.train), len(dev.dev), len(dev.test)] == [15, 5, 20]
    assert not Paper().split(own(), 1).dev  # and a run then says what to type
    Path("a.csv").write_text("text,label\n" + "good,x\nbad,y\n" * 30)
    with pytest.raises(UserError, match="too few different texts"):
        Honest().split(own("a.csv"), 1)
    for file in labelled([i / 7 for i in range(60)]):
        with pytest.raises(UserError, match=r"task\.kind=regression"):
            Honest().split(own(file), 1)


def name_of(*overrides):
    return plan(compose_run(["task=csv", "task.text=text", "task.label=label", *overrides])).run_id


@pytest.mark.slow
def test_a_run_is_named_after_the_file_and_identified_by_its_content():
    here = name_of("task.train=reviews.csv")
    assert here.startswith("ptuning_v2-pocket_bert-csv_reviews-full-s1-")
    Path("below").mkdir()
    Path("below/reviews.csv").write_text(delimited(reviews()))
    assert name_of("task.train=below/reviews.csv") == here
    assert name_of("task.train=reviews.csv", "task.dev=reviews.csv") != here
    Path("reviews.csv").write_text(delimited(reviews()[:-1]))
    assert name_of("task.train=reviews.csv") != here
    assert "-csv_own_set-" in name_of("task.train=reviews.csv", "task.name='own: set'")


def test_names_that_are_not_ascii_need_no_quotes():
    Path("评论 ä.csv").write_text(delimited(reviews()))
    assert "-csv_评论_ä-" in name_of("task.train=评论 ä.csv")
    composed = compose_run(["task=csv", "task.text=[标题, 正文]", "task.label=été"])
    assert composed.config["task"]["text"] == ["标题", "正文"]
    assert composed.config["task"]["label"] == "été"
