"""Tables as people have them: each is read right, or refused with what to type."""

import bz2
import gzip
import json
import logging
import lzma
import zipfile
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ptrun.errors import UserError
from ptrun.task.own import Own
from ptrun.task.protocol import Honest
from ptrun.task.table import Given, table
from tests.tiers import package

ROWS = [(f"a film number {i}", "pos" if i % 2 else "neg") for i in range(60)]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def cells(made=ROWS, separator=",", header="text,label"):
    lines = [header.replace(",", separator), *(separator.join(row) for row in made)]
    return "\n".join(lines) + "\n"


def own(name, content=None, /, **keys):
    if content is not None:
        Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return Own(None, **{"train": name, "text": "text", "label": "label", **keys})


def counts(task):
    examples = task.load("train")
    labels = task.labels
    return {label: sum(e.target == label for e in examples) for label in labels}


def refused(make, *told):
    with pytest.raises(UserError) as raised:
        counts(make())
    message = str(raised.value)
    assert all(words in message for words in told), message
    assert len(message.splitlines()) <= 3


def lone_quotes(separator):
    """Return a table whose 10th text begins with a quote, and whose 20th ends with one."""
    made = [*ROWS]
    made[9], made[19] = (f'"{made[9][0]}', made[9][1]), (f'{made[19][0]}"', made[19][1])
    return cells(made, separator)


@pytest.mark.parametrize(("name", "separator"), [("q.tsv", "\t"), ("q.csv", ",")])
def test_two_lone_quotes_do_not_join_the_rows_between_them(name, separator):
    content = lone_quotes(separator).replace('20"', '19"')
    if separator == "\t":
        refused(lambda: own(name, content), f"{name}:11: a quote opens", "task.quoting=none")
        assert counts(own(name, quoting="none")) == {"neg": 30, "pos": 30}


def test_a_cell_of_several_lines_is_one_cell():
    content = 'text,label\n"first,\nsecond ""line""",pos\nthird,neg\n'
    assert counts(own("a.csv", content)) == {"neg": 1, "pos": 1}
    joined = 'text,label\n"one, two\nthree",pos\nfive,neg\n'
    refused(lambda: own("b.csv", joined), "task.quoting=cells")
    (first, _) = own("b.csv", quoting="cells").load("train")
    assert first.fields["text"] == "one, two\nthree"


def test_every_row_counts_and_blank_lines_are_none_but_in_one_column():
    Path("gap.csv").write_text('text\na\n\nb\n""\nc\n\n\n')
    found = [(row.where, row.data["text"]) for row in table(Path("gap.csv")).rows(["text"])]
    assert found == [(f"gap.csv:{n}", t) for n, t in enumerate(["a", "", "b", "", "c"], start=2)]
    Path("two.csv").write_text("text,label\na,1\n\nb,2\n\n")
    found = [(row.where, row.data["text"]) for row in table(Path("two.csv")).rows(["text"])]
    assert found == [("two.csv:2", "a"), ("two.csv:4", "b")]


def test_empty_cells_are_told_at_once_and_can_be_left_out():
    made = [*ROWS, ("", "pos"), ("x", ""), ("\u200b", "neg")]
    refused(lambda: own("a.csv", cells(made)), "in 3 rows: a.csv:62, a.csv:63", "task.empty=skip")
    task = own("a.csv", empty="skip")
    assert counts(task) == {"neg": 30, "pos": 30}
    assert task.accounts["train"].record() == {"read": 63, "left_out": {"an empty cell": 3}}


SAME = {
    "CR": cells().replace("\n", "\r").encode(),
    "CRLF": cells().replace("\n", "\r\n").encode(),
    "BOM": b"\xef\xbb\xbf" + cells().encode(),
    "UTF-16": cells().encode("utf-16"),
    "sep": ("sep=;\n" + cells(separator=";")).encode(),
    "semicolons": cells(separator=";").encode(),
    "bars": cells(separator="|").encode(),
    "spaces": b'"text", "label"\n'
    + "".join(f'"{text}", "{label}"\n' for text, label in ROWS).encode(),
    "index": (
        ",text,label\n" + "".join(f"{i},{t},{b}\n" for i, (t, b) in enumerate(ROWS))
    ).encode(),
    "gzip": gzip.compress(cells().encode()),
    "bzip2": bz2.compress(cells().encode()),
    "xz": lzma.compress(cells().encode()),
    "zstandard": bytes(pa.compress(cells().encode(), codec="zstd", asbytes=True)),
}


@pytest.mark.parametrize("content", SAME.values(), ids=SAME)
def test_a_table_in_another_form_is_the_same(content):
    assert own("a.csv", content).load("train") == own("b.csv", cells()).load("train")


def test_a_zip_of_one_table_is_that_table_and_of_two_is_refused():
    with zipfile.ZipFile("a.zip", "w") as made:
        made.writestr("a.csv", cells())
    assert counts(own("a.zip", name="a")) == {"neg": 30, "pos": 30}
    with zipfile.ZipFile("a.zip", "a") as made:
        made.writestr("b.csv", cells())
    refused(lambda: own("a.zip"), "a zip file of a.csv, b.csv; unpack it")


def objects(made=ROWS):
    return [{"text": text, "label": label} for text, label in made]


JSON = {
    "lines": "".join(json.dumps(one) + "\n" for one in objects()),
    "a list": json.dumps(objects()),
    "a list over lines": json.dumps(objects(), indent=2),
    "objects over lines": "\n".join(json.dumps(one, indent=2) for one in objects()),
    "brackets in texts": json.dumps(objects())
    .replace("film", 'fi}l]m{[\\"')
    .replace('fi}l]m{[\\"', "film"),
}


@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
@pytest.mark.parametrize("content", JSON.values(), ids=JSON)
def test_json_is_read_in_every_form(name, content):
    task = own(name, content)
    assert task.load("train") == own("b.csv", cells()).load("train")


def test_brackets_inside_texts_do_not_end_an_object():
    made = [{"text": 'a } ] { [ " \\ b', "label": "x"}, {"text": "c", "label": "y"}]
    found = own("a.json", json.dumps(made, indent=1)).load("train")
    assert [e.fields["text"] for e in found] == ['a } ] { [ " \\ b', "c"]
    refused(lambda: own("b.json", '[{"text": "a", "label": "b"}, 3]'), "is not an object")
    refused(lambda: own("c.json", '{"text": "a",\n "label": "b"'), "has no end")


def test_arrow_parquet_and_folders_of_datasets_are_read():
    from datasets import ClassLabel, Dataset, Features, Value

    features = Features({"text": Value("string"), "label": ClassLabel(names=["neg", "pos"])})
    made = {"text": [t for t, _ in ROWS], "label": [int(b == "pos") for _, b in ROWS]}
    whole = Dataset.from_dict(made, features=features)
    whole.save_to_disk("saved", num_shards=3)
    whole.to_parquet("a.parquet")
    pa.ipc.new_file("a.arrow", whole.data.table.schema).close()
    with pa.OSFile("a.arrow", "wb") as sink, pa.ipc.new_file(sink, whole.data.table.schema) as out:
        out.write_table(whole.data.table)
    wanted = [e.target for e in own("b.csv", cells()).load("train")]
    for name in ("saved", "a.parquet", "a.arrow"):
        assert [e.target for e in own(name).load("train")] == wanted, name
    assert len(own("saved").digest()) == 16


def test_excel_is_read():
    package("openpyxl")
    import openpyxl

    book = openpyxl.Workbook()
    for row in [("text", "label"), *((t, int(b == "pos")) for t, b in ROWS)]:
        book.active.append(row)
    book.save("a.xlsx")
    assert counts(own("a.xlsx")) == {"0": 30, "1": 30}


@pytest.mark.parametrize(
    ("encoding", "text"), [("gb18030", "这部电影很好"), ("shift_jis", "この映画は良い")]
)
def test_another_encoding_is_advised_where_it_can_be_read(encoding, text):
    content = cells([(f"{text}{i}", "好" if i % 2 else "悪") for i in range(40)]).encode(encoding)
    refused(lambda: own("a.csv", content), f"{encoding} if it says '{text}0")
    task = own("a.csv", encoding=encoding)
    assert counts(task) == {"好": 20, "悪": 20}


def test_columns_without_a_header_are_named():
    content = cells(header="gj04,1").replace("gj04,1\n", "", 1)
    refused(lambda: own("a.csv", content), "no column 'text'", "task.columns=[...]")
    assert counts(own("a.csv", columns=["text", "label"])) == {"neg": 30, "pos": 30}
    refused(lambda: own("a.csv", columns=["text"], label="text"), "same column twice")
    assert counts(own("b.csv", cells(header="0,1"), text=0, label=1)) == {"neg": 30, "pos": 30}


LABELS = {
    "floats": (["1.0", "0.0"], {"0": 30, "1": 30}),
    "both": (["1.0", "1", "0", "0.00"], {"0": 30, "1": 30}),
    "words": (["True", "false", "TRUE", "False"], {"false": 30, "true": 30}),
    "padded": ([" a", "b ", "a", "b"], {"a": 30, "b": 30}),
    "zip codes": (["01", "1"], {"01": 30, "1": 30}),
    "separators": (["a/b", "c,d"], {"a/b": 30, "c,d": 30}),
}


@pytest.mark.parametrize(("values", "told"), LABELS.values(), ids=LABELS)
def test_one_value_is_one_label_in_every_form(values, told):
    made = [(f"t{i}", values[i % len(values)]) for i in range(60)]
    quoted = [(text, f'"{label}"') for text, label in made]
    assert counts(own("a.csv", cells(quoted))) == told
    lines = "".join(json.dumps({"text": t, "label": [b]}) + "\n" for t, b in made)
    assert counts(own("a.jsonl", lines)) == told


@pytest.mark.parametrize("value", [1, 1.0, True])
def test_numbers_of_other_forms_are_the_labels_of_a_csv(value):
    other = type(value)(0)
    made = pa.table({"text": ["a", "b"] * 2, "label": [value, other] * 2})
    pq.write_table(made, "a.parquet")
    dev = f"text,label\nx,{value}\ny,{other}\n"
    Path("dev.csv").write_text(dev)
    task = own("a.parquet", dev="dev.csv")
    assert {e.target for e in task.load("dev")} == set(task.labels)


@pytest.mark.parametrize("value", ["nan", "-", "None", "?"])
def test_a_value_that_may_mean_no_label_is_told_and_can_be_left_out(value, caplog):
    logging.getLogger("ptrun").propagate = True
    made = [*ROWS, *((f"t{i}", value) for i in range(4))]
    with caplog.at_level(logging.WARNING, "ptrun"):
        assert counts(own("a.csv", cells(made)))[value] == 4
    typed = '"?"' if value == "?" else value
    assert f"(4 rows) may mean that a row has no label; 'task.skip=[{typed}]'" in caplog.text
    task = own("a.csv", skip=[value])
    assert counts(task) == {"neg": 30, "pos": 30}
    assert task.accounts["train"].record()["left_out"] == {f"label is {value}": 4}


def test_minus_one_is_a_class_unless_the_others_count_from_zero(caplog):
    logging.getLogger("ptrun").propagate = True
    with caplog.at_level(logging.WARNING, "ptrun"):
        assert own("a.csv", cells([("a", "-1"), ("b", "+1")] * 9)).labels == ["+1", "-1"]
        assert not caplog.text
        assert own("b.csv", cells([("a", "-1"), ("b", "0"), ("c", "1")] * 9)).labels
    assert "task.skip=[-1]" in caplog.text


SEVERAL = {
    "commas": ['"pos,long"', '"neg,long"', "pos", "neg"],
    "semicolons": ["login;billing", "billing;login", "login", "billing"],
    "bars": ["a|b", "b|c", "a|c", "a|b|c"],
}


@pytest.mark.parametrize("values", SEVERAL.values(), ids=SEVERAL)
def test_several_labels_in_a_cell_are_refused(values):
    made = [(f"t{i}", values[i % 4]) for i in range(40)]
    refused(lambda: own("a.csv", cells(made, header="text,label")), "several labels in a cell")
    lines = "".join(json.dumps({"text": "x", "label": ["a", "b"]}) + "\n" for _ in range(4))
    refused(lambda: own("a.jsonl", lines), "If rows have several, type task.kind=multilabel")


def test_scores_are_no_labels_and_a_regression_reads_them():
    made = [(f"t{i}", f"{i / 16:.3f}") for i in range(80)] * 3
    refused(lambda: own("a.csv", cells(made)), "80 different numbers", "task.kind=regression")
    few = own("c.csv", cells(made[:60]))
    refused(lambda: Honest().split(few, 1), "60 different numbers", "task.kind=regression")
    task = own("a.csv", kind="regression")
    assert (task.labels, task.metric, task.load("train")[1].target) == (
        [],
        "pearson_spearman",
        0.062,
    )
    assert counts(own("b.csv", cells([(f"t{i}", str(i % 5)) for i in range(40)]))).keys() == set(
        "01234"
    )
    refused(lambda: own("c.csv", cells(), kind="regression"), "label is 'neg'; expected a number")
    refused(lambda: own("a.csv", kind="regression", metric="accuracy"), "task.kind=regression has")


def test_rows_that_prodigy_rejects_are_left_out():
    verdicts = ["accept", "accept", "reject", "ignore"]
    made = [{"text": t, "label": b, "answer": verdicts[i % 4]} for i, (t, b) in enumerate(ROWS)]
    lines = "".join(json.dumps(one) + "\n" for one in made)
    task = own("a.jsonl", lines)
    assert counts(task) == {"neg": 15, "pos": 15}
    left_out = {"answer is reject": 15, "answer is ignore": 15}
    assert task.accounts["train"].record() == {"read": 60, "left_out": left_out}
    assert len(own("a.jsonl", lines, label="answer").load("train")) == 60
    other = lines.replace('"ignore"', '"maybe"')
    assert len(own("b.jsonl", other).load("train")) == 60


def test_a_packed_file_that_grows_a_thousand_times_is_refused(monkeypatch):
    from ptrun.task import lines

    monkeypatch.setattr(lines, "_SMALL", 2**20)
    row = "x" * 1000 + ",a\n"
    content = gzip.compress(("text,label\n" + row * 60_000).encode(), 9)
    monkeypatch.setattr(lines, "_RATIO", 100)
    refused(lambda: own("a.csv.gz", content), "unpacks to more than 100 times its size")


def test_what_was_found_is_said():
    Path("a.csv").write_text(cells(separator=";"))
    assert table(Path("a.csv")).found == "cells separated by ;, header, utf-8"
    given = Given(columns=["a", "b"], quoting="none")
    assert table(Path("a.csv"), given).found == (
        "cells separated by ;, no header, utf-8, quotes are text"
    )


@pytest.mark.parametrize(
    ("keys", "told"),
    [({"separator": "ab"}, "type one character, or tab"), ({"encoding": "utf8x"}, "unknown")],
)
def test_a_wrong_form_is_refused(keys, told):
    with pytest.raises(UserError, match=told):
        own("a.csv", cells(), **keys)


def test_a_null_is_an_empty_cell_and_a_missing_number_may_be_skipped():
    made = {"text": ["a", None, "b", "c"], "label": [1.0, 0.0, float("nan"), 0.0]}
    pq.write_table(pa.table(made), "a.parquet")
    refused(lambda: own("a.parquet"), "an empty cell", "in 1 rows")
    task = own("a.parquet", empty="skip", skip=["nan"])
    assert [e.target for e in task.load("train")] == ["1", "0"]
    assert task.accounts["train"].left_out.total() == 2


def test_a_task_is_named_after_its_file_without_form_and_packing():
    assert own("my.data.csv", cells()).name == "my.data"
    assert own("My.csv.gz", gzip.compress(cells().encode())).name == "My"


def body(count=6):
    return "".join(f"film {i},{'pos' if i % 2 else 'neg'}\n" for i in range(count))


@pytest.mark.parametrize("content", ["text,label\n" + body(), "text,label\n" + body() + "\x1a"])
def test_a_header_again_is_no_row_and_the_end_of_dos_files_is_none(content):
    assert counts(own("a.csv", content)) == {"neg": 3, "pos": 3}
    again = content.rstrip("\x1a") + "text,label\n" + body()
    refused(lambda: own("b.csv", again), "b.csv", "columns again")
    named = {"columns": ["text", "label"]}
    refused(lambda: own("c.csv", content, **named), "c.csv:1", "leave out task.columns")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("text;label\na;pos\nb;neg\n".replace("label", "label,2,3"), "task.separator=';'"),
        ('text,label\n"He said \\"hi\\"",pos\n', "task.quoting=backslash"),
        ('"text";"label"\n"1";"a";"pos"\n', "row.names=FALSE"),
        ("text,label\na,pos,\n", "The row ends in a separator"),
        ("text,label,\na,pos\n", "The header ends in a separator"),
        ("<!DOCTYPE html>\n<p>text,label", "a page of HTML"),
        ("version https://git-lfs.github.com/spec/v1\noid x\n", "git lfs pull"),
        ("__label__pos a film\n", "lines of fastText"),
    ],
)
def test_what_else_a_file_may_be_is_told(content, told):
    refused(lambda: own("a.csv", content), told)


def test_quotes_that_a_backslash_escapes_are_read():
    content = 'text,label\n"He said \\"hi\\", then left",pos\nb,neg\n'
    found = own("a.csv", content, quoting="backslash").load("train")
    assert found[0].fields["text"] == 'He said "hi", then left'


@pytest.mark.parametrize("name", ["a.csv", "a.txt", "a.json"])
def test_json_is_read_by_its_bracket_whatever_its_name(name):
    rows = [{"text": f"t{i}", "label": "pn"[i % 2]} for i in range(6)]
    assert counts(own(name, json.dumps(rows))) == {"n": 3, "p": 3}
    assert counts(own(name, json.dumps({"documents": rows, "version": "1"}))) == {"n": 3, "p": 3}
    refused(lambda: own(name, json.dumps({"train": rows, "test": rows})), "lists train, test")


def test_one_object_of_columns_is_told():
    refused(lambda: own("a.json", '{"text":["a","b"],"label":["p","n"]}'), "is a list")


def shards(folder, names):
    folder.mkdir()
    for number, name in enumerate(names):
        (folder / name).write_text(f"text,label\na{number},pos\nb{number},neg\n")
    return folder


def test_files_that_differ_in_a_number_are_one_table(caplog):
    logging.getLogger("ptrun").propagate = True
    names = ["part-00000-ab1.csv", "part-00001-ab1.csv", "part-00002-ab1.csv"]
    folder = shards(Path("spark"), [*names, "_SUCCESS"])
    (folder / "_SUCCESS").write_text("")
    assert counts(own("spark")) == {"neg": 3, "pos": 3}
    assert own("spark/part-*-ab1.csv").name == "part"
    shards(Path("hub"), ["train-00000-of-00002.csv", "train-00001-of-00002.csv", "test-00000.csv"])
    assert counts(own("hub/train-*-of-00002.csv")) == {"neg": 2, "pos": 2}
    with caplog.at_level(logging.WARNING, "ptrun"):
        assert counts(own("hub/train-00000-of-00002.csv")) == {"neg": 1, "pos": 1}
    assert "'hub/train-*-of-00002.csv' names them all" in caplog.text
    refused(lambda: own("hub"), "a folder; name one file")


@pytest.mark.parametrize("encoding", ["UTF8", "utf-8", "utf_8_sig", None])
def test_byte_order_marks_are_no_text(encoding):
    Path("a.csv").write_bytes(b"\xef\xbb\xbf\xef\xbb\xbftext,label\na,pos\nb,neg\n")
    assert counts(own("a.csv", encoding=encoding)) == {"neg": 1, "pos": 1}


@pytest.mark.parametrize("encoding", ["idna", "rot13", "nope", "undefined"])
def test_an_encoding_that_is_none_is_refused(encoding):
    refused(lambda: own("a.csv", "text,label\n", encoding=encoding), "unknown; for example utf-8")


def test_russian_in_cp1251_is_named_so():
    good, bad = "\u041e\u0447\u0435\u043d\u044c", "\u041f\u043b\u043e\u0445\u043e\u0439"
    lines = "".join(f"{good} {good} {i},1\n{bad} {bad},0\n" for i in range(20))
    Path("a.csv").write_bytes(f"text,label\n{lines}".encode("cp1251"))
    refused(lambda: own("a.csv"), "cp1251 if it says")


def test_a_packed_parquet_file_is_to_be_unpacked():
    Path("a.parquet.gz").write_bytes(gzip.compress(b"PAR1" + b"0" * 50))
    refused(lambda: own("a.parquet.gz"), "parquet inside gzip; unpack it")


def test_lists_of_classes_of_a_hub_s_parquet_are_names():
    kinds = datasets.Features(
        {
            "text": datasets.Value("string"),
            "label": datasets.List(datasets.ClassLabel(names=["n", "p"])),
        }
    )
    rows = [{"text": f"t{i}", "label": [i % 2]} for i in range(6)]
    made = datasets.Dataset.from_list(rows, features=kinds)
    pq.write_table(made.data.table, "a.parquet")
    assert counts(own("a.parquet")) == {"n": 3, "p": 3}


def test_an_excel_file_of_another_name_and_of_several_sheets_is_read():
    package("openpyxl")
    import openpyxl

    book = openpyxl.Workbook()
    for row in [["text", "label"], ["a", "pos"], [None, None], ["b", "neg"]]:
        book.active.append(row)
    book.create_sheet("more").append(["x"])
    book.save("a.xlsx")
    Path("a.xlsx").rename("a.csv")
    task = own("a.csv", empty="skip")
    assert counts(task) == {"neg": 1, "pos": 1}
    assert task.accounts["train"].record()["left_out"] == {"an empty cell": 1}
    refused(lambda: own("a.csv", label="x"), "the first of Sheet, more")


def test_few_different_texts_are_too_few():
    task = own("a.csv", "text,label\n" + "good,pos\nbad,neg\n" * 30)
    with pytest.raises(UserError, match="too few different texts"):
        Honest().split(task, 1)


def test_a_file_whose_rows_all_mean_nothing_is_refused():
    refused(lambda: own("a.csv", "text,label\na,\nb,\n", empty="skip"), "no rows are left")
