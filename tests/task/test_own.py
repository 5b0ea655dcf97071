"""Own tables: labels inferred and told, one clear error each, identity by content."""

import gzip
import json
import logging
import zipfile
from pathlib import Path

import openpyxl
import pytest

from ptrun.config import identity
from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.task.own import Own
from ptrun.task.protocol import Honest, Paper
from tests.task.malformed_tables import delimited, parquet, reviews


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("reviews.csv").write_text(delimited(reviews()))
    return tmp_path


def own(train="reviews.csv", **keys):
    return Own(None, **{"train": train, "text": "text", "label": "label", **keys})


def refused(train="reviews.csv", **keys):
    with pytest.raises(UserError) as raised:
        task = own(train, **keys)
        assert task.labels
        for part in ("train", "dev", "test"):
            task.load(part) if task.has(part) else None
    told = str(raised.value)
    assert len(told.splitlines()) <= 3
    return told


def test_labels_are_inferred_sorted_and_told(folder, caplog):
    logging.getLogger("ptrun").propagate = True
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


def test_labels_that_train_lacks_are_named_all_at_once(folder):
    Path("dev.csv").write_text("text,label\na,positive\nb,maybe\nc,never\nd,maybe\n")
    assert refused(dev="dev.csv") == (
        "dev.csv:3: label is 'maybe', a label that reviews.csv does not have; it has negative, "
        "positive\nIn 3 rows: correct them, or type 'task.skip=[maybe,never]' to leave them out."
    )
    assert [e.target for e in own(dev="dev.csv", skip=["maybe", "never"]).load("dev")] == [
        "positive"
    ]


def test_every_form_reads_the_same(folder):
    rows = reviews()
    lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
    table = parquet({key: [row[key] for row in rows] for key in rows[0]})
    semicolons = b"\xef\xbb\xbf" + delimited(rows, ";").replace("\n", "\r\n").encode()
    forms = {"a.tsv": delimited(rows, "\t").encode(), "a.jsonl": lines, "a.parquet": table}
    forms |= {"b.csv": semicolons, "b.csv.gz": gzip.compress(semicolons)}
    for name, content in forms.items():
        Path(name).write_bytes(content)
        assert own(name).load("train") == own().load("train"), name


def test_pairs_quotes_and_line_breaks_are_kept(folder):
    text = 'premise,hypothesis,y\n"He said ""no"",\nthen left",He left,1\nx,y,0\n'
    Path("pairs.csv").write_text(text)
    task = own("pairs.csv", text=["premise", "hypothesis"], label="y")
    assert task.fields == ["premise", "hypothesis"] and task.labels == ["0", "1"]
    assert task.load("train")[0].fields["premise"] == 'He said "no",\nthen left'
    Path("pairs.csv").write_text(text + "z,,1\n")
    told = refused("pairs.csv", text=["premise", "hypothesis"], label="y")
    assert "pairs.csv:5: an empty cell (hypothesis), in 1 rows" in told
    assert "write both texts into one column" in told and "leave out 1 of 3 rows" in told


def test_quotes_are_plain_text_if_the_user_says_so(folder):
    text = 'premise\thypothesis\ty\n"No, he said\t"He left"\t1\nx\ty "z\t0\n'
    Path("pairs.tsv").write_text(text)
    pair = {"text": ["premise", "hypothesis"], "label": "y"}
    first, second = own("pairs.tsv", quoting="none", **pair).load("train")
    assert first.fields == {"premise": '"No, he said', "hypothesis": '"He left"'}
    assert second.fields == {"premise": "x", "hypothesis": 'y "z'}
    assert "type task.quoting=none" in refused("pairs.tsv", **pair)


def test_rows_keep_the_ids_that_their_file_has(folder):
    Path("a.csv").write_text("id,text,label\nr7,fine,yes\n,bad,no\n")
    assert [e.id for e in own("a.csv").load("train")] == ["r7", "train-1"]
    table = parquet({"id": [3, 4], "text": ["x", "y"], "label": ["a", "b"]})
    Path("a.parquet").write_bytes(table)
    assert [e.id for e in own("a.parquet").load("train")] == ["3", "4"]
    Path("b.csv").write_text("id,label\nfine,yes\nbad,no\n")  # `id` is the text
    assert [e.id for e in own("b.csv", text="id").load("train")] == ["train-0", "train-1"]


@pytest.mark.parametrize(
    ("label", "name"),
    [([1, 0], "1"), ([1.0, 0.0], "1"), ([True, False], "true"), ([0.5, 1.5], "0.5")],
)
def test_numbers_are_labels_as_text(folder, label, name):
    rows = ({"text": "x", "label": label[i % 2]} for i in range(4))
    Path("a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert own("a.jsonl").load("train")[0].target == name


WRONG = {
    "no file": ({"train": None}, ["no training file", "task.train=FILE"]),
    "misspelt file": ({"train": "revews.csv"}, ["no such file", "did you mean 'reviews.csv'?"]),
    "folder": ({"train": "."}, ["a folder; name one file", "reviews.csv"]),
    "no text": ({"text": None}, ["task.text", "columns: text, label", "task.text=[COLUMN,COLUMN]"]),
    "three texts": ({"text": ["a", "b", "c"]}, ["task.text", "columns: text, label"]),
    "no label": ({"label": None}, ["task.label", "columns: text, label"]),
    "misspelt": ({"label": "lable"}, ["no column 'lable'; did you mean 'label'?", "text, label"]),
    "twice": ({"label": "text"}, ["task.text=text and task.label=text", "columns: text, label"]),
    "one setting's files": ({"variant": "fewglue"}, ["setting=fewglue", "setting=full"]),
}


@pytest.mark.parametrize(("keys", "told"), WRONG.values(), ids=WRONG)
def test_a_wrong_option_is_explained(folder, keys, told):
    message = refused(**keys)
    assert all(words in message for words in told), message


BROKEN = {
    "ragged": ("text,label\na,b,c\nd,e\n", ["x.csv:2: 3 cells, the header has 2", "double quotes"]),
    "open quote": ('text,label\na,b\n"c,d\ne,f\n', ["x.csv:3", "quote"]),
    "CP1252": (
        b"text,label\na,b\ncaf\xe9,c\n",
        ["x.csv:3: byte 0xe9 at 4", "task.encoding=", "cp1252 if it says 'café,c'"],
    ),
    "doubled name": ("text,label,text\na,b,c\n", ["x.csv:1: column 'text' appears twice"]),
    "empty": ("", ["x.csv: empty"]),
    "header alone": ("text,label\n", ["x.csv: no rows below the header"]),
    "no header": ("fine,good\npoor,bad\n", ["no column 'text'", "names the columns: fine, good"]),
    "one label": ("text,label\na,b\nc,b\n", ["only one value, 'b'", "task.label=COLUMN"]),
    "no labels": (
        "text,label\n" + "".join(f"a,{i}\n" for i in range(30)),
        ["30 different values in 30 rows", "task.label=COLUMN, of text, label"],
    ),
    "zip": (b"PK\x03\x04abc", ["x.csv: a damaged Excel or zip file"]),
}


@pytest.mark.parametrize(("content", "told"), BROKEN.values(), ids=BROKEN)
def test_a_broken_table_is_explained(folder, content, told):
    Path("x.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    message = refused("x.csv")
    assert all(words in message for words in told), message


def test_a_label_that_train_does_not_have_is_refused(folder):
    Path("dev.csv").write_text("text,label\nfine,positive\nso so,mixed\n")
    told = refused(dev="dev.csv")
    assert "dev.csv:3: label is 'mixed'" in told and "it has negative, positive" in told


def test_honest_carves_what_is_not_given(folder):
    alone = Honest().split(own(), 1)
    parts = [alone.train, alone.dev, alone.test]
    assert [len(part) for part in parts] == [12, 3, 5]
    assert len({e.id for part in parts for e in part}) == 20
    assert alone.origin == {
        "dev": "20% of each class of train",
        "test": "25% of each class of train",
    }
    dev = Honest().split(own(dev="reviews.csv"), 1)
    assert [len(dev.train), len(dev.dev), len(dev.test)] == [15, 5, 20]
    assert not Paper().split(own(), 1).dev  # and a run then says what to type


def name_of(*overrides):
    composed = compose_run(["task=csv", "task.text=text", "task.label=label", *overrides])
    keys = {key: value for key, value in composed.config["task"].items() if key != "_target_"}
    content = identity.affecting(composed.config, Own(None, **keys).digest(), "w")
    return identity.run_id(composed.names, content)


@pytest.mark.slow
def test_a_run_is_named_after_the_file_and_identified_by_its_content(folder):
    here = name_of("task.train=reviews.csv")
    assert here.startswith("ptuning_v2-pocket_bert-csv_reviews-full-s1-")
    Path("below").mkdir()
    Path("below/reviews.csv").write_text(delimited(reviews()))
    assert name_of("task.train=below/reviews.csv") == here
    assert name_of("task.train=reviews.csv", "task.dev=reviews.csv") != here
    Path("reviews.csv").write_text(delimited(reviews()[:-1]))
    assert name_of("task.train=reviews.csv") != here
    assert "-csv_own_set-" in name_of("task.train=reviews.csv", "task.name='own: set'")


def test_names_that_are_not_ascii_need_no_quotes(folder):
    Path("评论 ä.csv").write_text(delimited(reviews()))
    assert "-csv_评论_ä-" in name_of("task.train=评论 ä.csv")
    composed = compose_run(["task=csv", "task.text=[标题, 正文]", "task.label=été"])
    assert composed.config["task"]["text"] == ["标题", "正文"]
    assert composed.config["task"]["label"] == "été"


def test_one_value_is_one_thing_in_every_kind_of_file(folder):
    numbers = {"text": [1, 2, 3.5], "label": ["caf\u00e9", "cafe\u0301", "x\u200b"]}
    rows = [dict(zip(numbers, row, strict=True)) for row in zip(*numbers.values(), strict=True)]
    Path("a.csv").write_text(delimited(rows))
    Path("a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name in ("a.csv", "a.jsonl"):
        found = [(e.fields["text"], e.target) for e in own(name).load("train")]
        assert found == [("1", "café"), ("2", "café"), ("3.5", "x")]


def test_a_key_that_an_object_lacks_is_an_empty_cell(folder):
    rows = [{"text": "a"}, {"text": "b", "label": "x"}, {"label": "y"}, {"text": "c", "label": "y"}]
    Path("a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert "in 2 rows: a.jsonl:1, a.jsonl:3" in refused("a.jsonl")
    assert [e.target for e in own("a.jsonl", empty="skip").load("train")] == ["x", "y"]


def test_labels_that_differ_only_in_case_are_named(folder, caplog):
    Path("a.csv").write_text("text,label\na,Yes\nb,yes\nc,no\n")
    assert own("a.csv").labels == ["Yes", "no", "yes"]
    assert (
        "the labels Yes, yes differ only in how they are written and are different" in caplog.text
    )


def test_scores_with_a_comma_are_no_labels(folder):
    lines = "".join(f"t{i};{i / 7:.2f}\n".replace(".", ",") for i in range(60))
    Path("a.csv").write_text(f"text;label\n{lines}")
    assert "numbers with a comma, as 0,00.\nIf they are decimals" in refused("a.csv")


def test_a_file_whose_rows_are_all_left_out_is_refused(folder):
    Path("a.csv").write_text("text,label\na,x\nb,y\n")
    assert "no rows are left (2 rows, 1 left out: label is x; 1 left out: label is y)" in refused(
        "a.csv", skip=["x", "y"]
    )


def test_a_sheet_with_a_wrong_size_and_a_number_in_its_header_is_read_whole(folder):
    book = openpyxl.Workbook()
    for row in [("text", "label", 2020), *((f"t{i}", "ab"[i % 2], i) for i in range(60))]:
        book.active.append(row)
    book.save("whole.xlsx")
    with zipfile.ZipFile("whole.xlsx") as whole, zipfile.ZipFile("a.xlsx", "w") as wrong:
        for name in whole.namelist():
            content = whole.read(name).replace(b'ref="A1:C61"', b'ref="A1:C31"')
            wrong.writestr(name, content)
    assert len(own("a.xlsx").load("train")) == 60


def test_a_row_of_a_sheet_ends_at_its_last_cell(folder):
    book = openpyxl.Workbook()
    for row in [("text", "label", None, "note"), ("a", "x"), ("b", None), ("c", "y", 1, "n", "o")]:
        book.active.append(row)
    book.save("a.xlsx")
    task = own("a.xlsx", empty="skip")
    assert [e.target for e in task.load("train")] == ["x", "y"]
    assert str(task.accounts["train"]) == "3 rows, 1 left out: an empty cell"
