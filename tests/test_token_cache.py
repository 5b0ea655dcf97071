"""Tokenized once: the same rows come back, and anything that matters makes another file."""

from dataclasses import replace

from ptrun.method.ptuning_v2 import PTuningV2
from ptrun.token_cache import encoded
from tests.training import conll03, sst2


def many(task):
    rows = task.load("train")
    return [replace(e, id=f"{e.id}-{i}") for i in range(100) for e in rows]


def test_the_second_time_the_rows_are_read_and_are_the_same(tiny, data_dir, tmp_path, monkeypatch):
    for task in (sst2(data_dir), conll03(data_dir)):
        method = PTuningV2(tiny(), task, length=2)
        first = encoded(method, many(task), tmp_path)
        monkeypatch.setattr(method.readout, "encode", None)
        assert (
            encoded(method, many(task), tmp_path) == first == encoded(method, many(task), tmp_path)
        )


def test_text_label_length_and_tokenizer_make_another_file(tiny, data_dir, tmp_path):
    task = sst2(data_dir)
    examples = many(task)
    encoded(PTuningV2(tiny(), task, length=2), examples, tmp_path)
    changed = [replace(examples[0], target="negative"), *examples[1:]]
    reworded = [replace(examples[0], fields={"sentence": "other"}), *examples[1:]]
    encoded(PTuningV2(tiny(), task, length=2), changed, tmp_path)
    encoded(PTuningV2(tiny(), task, length=2), reworded, tmp_path)
    encoded(PTuningV2(tiny(), task, length=3), examples, tmp_path)
    encoded(PTuningV2(tiny("roberta"), task, length=2), examples, tmp_path)
    assert len(list(tmp_path.glob("*.json"))) == 5


def test_few_examples_are_not_kept(tiny, data_dir, tmp_path):
    task = sst2(data_dir)
    encoded(PTuningV2(tiny(), task, length=2), task.load("train"), tmp_path / "none")
    assert not (tmp_path / "none").exists()
