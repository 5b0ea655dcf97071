"""Tokenized once: the same rows come back, and anything that matters makes another file."""

import json
import resource
from dataclasses import replace

import pytest

from ptrun.method.manual_prompt import ManualPrompt
from ptrun.method.ptuning_v2 import PTuningV2
from ptrun.runs import token_cache
from ptrun.runs.token_cache import encoded
from tests.readings import reading
from tests.readout.reading import task as shipped
from tests.small_runs import conll03, sst2
from tests.task.test_multi import both


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
    assert len(list(tmp_path.glob("*.arrow"))) == 5


def test_few_examples_are_not_kept(tiny, data_dir, tmp_path):
    task = sst2(data_dir)
    encoded(PTuningV2(tiny(), task, length=2), task.load("train"), tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_cache_that_cannot_be_written_ends_no_run(tiny, data_dir, tmp_path):
    task = sst2(data_dir)
    method, examples = PTuningV2(tiny(), task, length=2), many(task)
    (tmp_path / "file").write_text("")
    assert encoded(method, examples, tmp_path / "file") == method.encode(examples)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limit[1]))
    try:
        assert encoded(method, examples, tmp_path / "full") == method.encode(examples)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert not list((tmp_path / "full").glob("*.arrow"))


WORDS = {"negative": ["bad"], "positive": ["good"]}
PVPS = {
    "one": {"pattern": "{~sentence} was {mask}.", "words": WORDS},
    "other": {"pattern": "{~sentence} is {mask}.", "words": WORDS},
    "reworded": {"pattern": "{~sentence} was {mask}.", "words": {**WORDS, "negative": ["dull"]}},
}
FACTS = {"one": {"pattern": "{template|fact_start}"}}
RELATED = [
    ("bert", "sst2", {"pattern": "other"}, {}),
    ("bert", "sst2", {"pattern": "reworded"}, {}),
    ("bert", "sst2", {"among": "vocabulary"}, {}),
    ("bert", "sst2", {}, {"max_tokens": 12}),
    ("t5", "sst2", {"sentinel": False}, {}),
    ("gpt2", "lama", {"shifted_label": True}, {}),
    ("gpt2", "lama", {"released_query": True}, {}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name", "options", "changes"), RELATED)
def test_every_option_that_changes_rows_makes_another_file(
    tiny, data_dir, tmp_path, kind, name, options, changes
):
    """The same option again finds its file; `among` changes targets, the others rows."""
    pvps = {"sst2": PVPS, "lama": FACTS}[name]
    for count, (own, key) in enumerate([({"pattern": "one"}, {}), (options, changes)], start=1):
        data = shipped(name, data_dir, pvps=pvps, **key)
        keys = {"pattern": "one", **own}
        method = ManualPrompt(tiny(kind), data, reading("verbalizer", **keys))
        for _ in range(2):
            encoded(method, many(data), tmp_path)
            assert len(list(tmp_path.glob("*.arrow"))) == count


def test_other_fields_code_and_decoder_starts_make_another_file(
    tiny, data_dir, tmp_path, monkeypatch
):
    data, backbone = shipped("rte", data_dir), tiny("t5")
    examples = many(data)
    encoded(PTuningV2(backbone, data, length=2), examples, tmp_path)
    data.fields = data.fields[::-1]
    encoded(PTuningV2(backbone, data, length=2), examples, tmp_path)
    backbone.config = {**backbone.config, "decoder_start_token_id": 3}
    encoded(PTuningV2(backbone, data, length=2), examples, tmp_path)
    monkeypatch.setattr(token_cache, "_code", lambda: "other code")
    encoded(PTuningV2(backbone, data, length=2), examples, tmp_path)
    assert len(list(tmp_path.glob("*.arrow"))) == 4


@pytest.mark.slow
def test_answerable_or_not_makes_another_file(tiny, data_dir, tmp_path):
    rows = shipped("squad", data_dir)
    examples = many(rows)
    for name in ("squad", "squad_v2"):
        encoded(PTuningV2(tiny(), shipped(name, data_dir), length=2), examples, tmp_path)
    assert len(list(tmp_path.glob("*.arrow"))) == 2


KEPT = ["rte", "glue_stsb", "race_middle", "record", "conll03", "srl_up_de", "squad", "squad_v2"]
KEPT += ["copa+", "record+", "wsc+", "lama+", "race_middle+"]


@pytest.mark.parametrize("name", KEPT)
def test_rows_of_every_read_out_come_back_from_json_as_they_were(tiny, data_dir, name):
    """`+` is the verbalizer; facts with numbers as keys, or pairs, would come back changed."""
    data = shipped(name.removesuffix("+"), data_dir)
    if name.endswith("+"):
        made = ManualPrompt(tiny(), data, reading=reading("verbalizer")).encode(data.load("train"))
    else:
        made = PTuningV2(tiny(), data, length=2).encode(data.load("train"))
    there = [token_cache._features(row) for row in json.loads(json.dumps(made, default=vars))]
    assert there == made and len(made) >= 5
    types = [type(target) for f in made for target in f.targets]
    assert types == [type(target) for f in there for target in f.targets]


@pytest.mark.slow
def test_what_one_of_several_data_sets_says_makes_another_file(tiny, data_dir, tmp_path):
    """Its length, the order of its labels: the rows or targets of that set alone change."""
    task = both(data_dir)
    examples, own = many(task), task.tasks["conll03"]
    changes = [("max_tokens", None), ("max_tokens", 5), ("labels", ["O", *own.labels[:0:-1]])]
    for count, (key, value) in enumerate(changes, start=1):
        setattr(own, key, value)
        for _ in range(2):
            method = PTuningV2(tiny(), task, length=2, reading=reading("head", pooler="none"))
            assert encoded(method, examples, tmp_path) == method.encode(examples)
        assert len(list(tmp_path.glob("*.arrow"))) == count
