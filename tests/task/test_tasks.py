"""Tasks read local files line by line, map labels by name, and say where something is wrong."""

import gzip

import pytest

from ptrun.config.build import build
from ptrun.errors import UserError
from ptrun.task.protocol import Honest, Paper
from ptrun.task.source import Source
from tests.composing import task_node
from tests.small_runs import conll03, sst2


def test_rows_become_examples_in_file_order(data_dir):
    examples = sst2(data_dir).load("train")
    assert [e.id for e in examples] == [f"train-{i}" for i in range(6)]
    assert examples[0].fields == {"sentence": "a good bright film"}
    assert [e.target for e in examples[:2]] == ["positive", "negative"]


def test_gzip_and_plain_files_read_the_same(data_dir):
    plain = conll03(data_dir).load("train")
    file = data_dir / "conll03" / "train.jsonl"
    with gzip.open(file.with_name("train.jsonl.gz"), "wt", encoding="utf-8") as opened:
        opened.write(file.read_text())
    file.unlink()
    assert conll03(data_dir).load("train") == plain


def test_empty_missing_and_unreadable_files_are_named(data_dir):
    file = data_dir / "sst2" / "train.jsonl"
    file.write_text("\n\n")
    with pytest.raises(UserError, match=r"train.jsonl: no examples; the split is empty"):
        sst2(data_dir).load("train")
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="not readable as UTF"):
        sst2(data_dir).load("train")
    file.unlink()
    with pytest.raises(UserError, match=r"train.jsonl\[.gz\]: no such file"):
        sst2(data_dir).load("train")
    with pytest.raises(UserError, match="no such folder"):
        sst2(data_dir / "nowhere").load("train")


def test_the_digest_follows_content(data_dir):
    before = sst2(data_dir).digest()
    assert before == sst2(data_dir).digest()
    with (data_dir / "sst2" / "test.jsonl").open("a") as opened:
        opened.write('{"sentence": "more", "label": 1}\n')
    assert sst2(data_dir).digest() != before


def test_a_source_nobody_reads_is_refused():
    with pytest.raises(UserError, match=r"task.source has \['ftp'\]"):
        Source("x", {"ftp": "y"}, None)


def test_files_that_only_the_user_has_are_asked_for_with_how_to_make_them(tmp_path):
    source = Source("conll05_wsj", {"folder": "conll05_wsj", "how": "from LDC99T42"}, None)
    with pytest.raises(UserError) as raised:
        list(source.rows("train"))
    message = str(raised.value)
    assert "task=conll05_wsj: local files only; give data_dir=DIR" in message
    assert "DIR/conll05_wsj/{train,validation,test}.jsonl[.gz]" in message
    assert message.endswith("How to make it: from LDC99T42")
    with pytest.raises(UserError, match=r"(?s)test.jsonl\[.gz\]: no such file.*from LDC99T42"):
        list(Source("x", source.origin, str(tmp_path)).rows("test"))


def test_how_to_make_files_is_no_part_of_their_identity():
    origin = {"hub": "x", "revision": "main"}
    digests = {Source("x", {**origin, "how": how}, None).digest(["a"]) for how in ("a", "b")}
    assert digests == {Source("x", origin, None).digest(["a"])}


def test_a_renamed_hub_field_replaces_one_of_that_name_or_is_missed_by_name(tmp_path):
    from datasets import Dataset

    rows = {"text": ["x"], "label": [0], "label_text": ["objective"]}
    Dataset.from_dict(rows).to_parquet(tmp_path / "train-00000.parquet")
    origin = {"hub": str(tmp_path), "rename": {"label_text": "label"}}
    assert next(Source("x", origin, None).rows("train")).data == {"text": "x", "label": "objective"}
    with pytest.raises(UserError, match="train row 0: no field 'words'"):
        list(Source("x", {**origin, "rename": {"words": "tokens"}}, None).rows("train"))


def test_hub_rows_are_renamed_and_their_labels_read_by_name(tmp_path):
    from datasets import ClassLabel, Dataset, Features, List, Value

    names = ClassLabel(names=["O", "B-PER"])
    features = Features({"text": Value("string"), "label": names, "tags": List(names)})
    rows = {"text": ["x", "y"], "label": [1, 0], "tags": [[0, 1], [0]]}
    Dataset.from_dict(rows, features=features).to_parquet(tmp_path / "train-00000.parquet")
    source = Source("x", {"hub": str(tmp_path), "rename": {"text": "sentence"}}, None)
    read = [row.data for row in source.rows("train")]
    assert read[0] == {"sentence": "x", "label": "B-PER", "tags": ["O", "B-PER"]}
    assert read[1]["label"] == "O"


def test_honest_carves_dev_where_test_is_hidden_and_paper_does_not(data_dir):
    task = sst2(data_dir)
    task._splits = {"train": "train", "dev": "validation", "test": None}
    split = Honest(dev_share=1 / 3).split(task, data_seed=1)
    assert [len(part) for part in (split.train, split.dev, split.test)] == [4, 2, 5]
    assert not {e.id for e in split.train} & {e.id for e in split.dev}
    assert split.origin == {"dev": "33% of each class of train", "test": "dev of the task"}
    assert split == Honest(dev_share=1 / 3).split(task, data_seed=1)
    papers = Paper().split(task, data_seed=1)
    assert papers.dev == papers.test and "selected on it too" in papers.origin["test"]


def test_rows_of_a_source_are_the_first_ones_and_other_data(data_dir):
    origin = {"hub": "none", "rows": {"train": 2}}
    cut = Source("sst2", origin, str(data_dir))
    whole = Source("sst2", {"hub": "none"}, str(data_dir))
    assert list(cut.rows("train")) == list(whole.rows("train"))[:2]
    assert list(cut.rows("test")) == list(whole.rows("test"))
    assert cut.digest(["train"]) != whole.digest(["train"])
    assert cut.digest(["test"]) == whole.digest(["test"])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (100, r"rows=100: expected a whole number"),
        ({"test": 0}, r"rows=\{'test': 0\}: expected a whole number"),
        ({"dev": 9}, r"rows\.dev: unknown. Allowed: test, train, validation"),
    ],
)
def test_wrong_rows_of_a_source_are_refused(rows, message):
    node = task_node("pocket_pairs")
    node["source"]["rows"] = rows
    with pytest.raises(UserError, match=message):
        build("task", node, None)
