"""SuperGLUE's and FewGLUE's files become the rows of the hub's copy."""

import pytest

from ptrun.errors import UserError
from tests.importing.data.original import TITLES, dump, imported, load, task
from tests.tiers import tiered

BOUGHT = {"question": "What did they buy?", "idx": 3}
BOUGHT["answers"] = [{"text": "A boat", "idx": 11, "label": 1}]
BOUGHT["answers"] += [{"text": "A door", "idx": 12, "label": 0}]
MET = {"question": "Who?", "idx": 4, "answers": [{"text": "Ann", "idx": 13, "label": 1}]}
MULTIRC = {"idx": 7, "version": 1.1}
MULTIRC["passage"] = {
    "text": "Ann met Bob in Oslo. They bought a boat and a lamp.",
    "questions": [BOUGHT, MET],
}
NAMED = [{"start": 28, "end": 30}, {"start": 0, "end": 6}, {"start": 12, "end": 14}]
WENT = {"query": "@placeholder went away.", "idx": 9}
WENT["answers"] = [{"start": 28, "end": 30, "text": "Bob"}, {"start": 12, "text": "Bob"}]
RECORD = {"source": "x", "idx": 5}
RECORD["passage"] = {"text": "Ann Lee met Bob.\n@highlight\nBob went to Oslo.", "entities": NAMED}
MET_BOB = {"query": "@placeholder met Bob.", "idx": 10, "answers": [{"text": "Ann Lee"}]}
RECORD["qas"] = [WENT, MET_BOB]
WSC = {"text": "The lamp fell on the boat because it was loose.", "idx": 0, "label": True}
WSC["target"] = {"span1_index": 0, "span2_index": 7, "span1_text": "The lamp", "span2_text": "it"}
COPA = {"premise": "It fell.", "choice1": "It was loose.", "choice2": "It broke."}
WIC = {"word": "go", "sentence1": "We go.", "sentence2": "A go.", "idx": 0, "label": False}
FLAT = {
    "BoolQ": {"question": "is it so", "passage": "It is so.", "idx": 0, "label": True},
    "CB": {"premise": "It is so.", "hypothesis": "It is.", "idx": 0, "label": "neutral"},
    "COPA": COPA | {"question": "effect", "label": 1, "idx": 0},
    "RTE": {"premise": "It is so.", "hypothesis": "It is.", "label": "not_entailment", "idx": 0},
    "WiC": WIC | {"start1": 3, "start2": 2, "end1": 5, "end2": 4, "version": 1.1},
}
PUBLISHED = {**FLAT, "MultiRC": MULTIRC, "ReCoRD": RECORD, "WSC": WSC}
GOLD = {"boolq": ["yes"], "cb": ["neutral"], "copa": [1], "multirc": ["right", "wrong", "right"]}
GOLD |= {"record": [["Bob"], ["Ann Lee"]], "rte": ["not_entailment"]}
GOLD |= {"wic": ["different"], "wsc": ["same"]}


@pytest.fixture
def published(tmp_path):
    """Write all tasks; test has no labels."""
    for name, row in PUBLISHED.items():
        for split in ("train", "val"):
            dump(tmp_path / "SuperGLUE" / name / f"{split}.jsonl", [row])
        hidden = {key: value for key, value in row.items() if key != "label"}
        dump(tmp_path / "SuperGLUE" / name / "test.jsonl", [hidden])
    return tmp_path / "SuperGLUE"


@pytest.mark.parametrize("name", tiered(sorted(GOLD), lambda name: name == "multirc"))
def test_a_task_reads_what_was_imported(published, tmp_path, name):
    data = task(name, imported("superglue", published, tmp_path / "out"))
    for part in ("train", "dev"):
        assert [example.target for example in data.load(part)] == GOLD[name]
    assert not data.has("test")


def test_a_line_is_printed_about_each_file(published, tmp_path, capsys):
    out = imported("superglue", published, tmp_path / "out")
    told = capsys.readouterr().out.splitlines()
    written = [file for file in out.rglob("*") if file.is_file()]
    assert len(told) == 24 == len(written) and not list(tmp_path.rglob("*.partial"))
    assert f"{out}/superglue/multirc/train.jsonl: 3 rows" in told
    assert f"{out}/superglue/wsc/validation.jsonl: 1 row" in told


def test_nested_rows_become_flat_ones(published, tmp_path):
    out = imported("superglue", published, tmp_path / "out") / "superglue"
    answer = load(out / "multirc" / "train.jsonl")[1]
    assert answer == {
        "paragraph": MULTIRC["passage"]["text"],
        "question": "What did they buy?",
        "answer": "A door",
        "idx": {"paragraph": 7, "question": 3, "answer": 12},
        "label": 0,
    }
    (row,) = load(out / "wsc" / "train.jsonl")
    assert row == {"text": WSC["text"], **WSC["target"], "idx": 0, "label": 1}
    query = load(out / "record" / "train.jsonl")[0]
    assert query["entities"] == ["Ann Lee", "Bob"] and query["answers"] == ["Bob"]
    spans = {"text": ["Ann Lee", "Bob", "Bob"], "start": [0, 12, 28], "end": [7, 15, 31]}
    assert query["entity_spans"] == spans and query["idx"] == {"passage": 5, "query": 9}


@pytest.mark.parametrize("name", tiered(sorted(GOLD), lambda name: name == "wsc"))
def test_fewglue_has_its_own_dev_and_the_published_one_as_test(tmp_path, name):
    for split, count in (("train", 2), ("dev32", 3), ("unlabeled", 5), ("val", 4)):
        dump(tmp_path / "few" / TITLES[name] / f"{split}.jsonl", [PUBLISHED[TITLES[name]]] * count)
    out = imported("fewglue", tmp_path / "few", tmp_path / "out")
    data, gold = task(name, out, variant="fewglue"), GOLD[name]
    for part, count in (("train", 2), ("dev", 3), ("test", 4)):
        assert [example.target for example in data.load(part)] == gold * count


OUTSIDE = {"text": "Ann", "entities": [{"start": 0, "end": 3}]}
CHANGES = [
    ("BoolQ", {"label": "yes"}, "field 'label' is 'yes'; expected one of False"),
    ("BoolQ", {"question": 3}, "field 'question' is 3"),
    ("WSC", {"target": []}, r"field 'target' is \[\]; expected an object"),
    ("MultiRC", {"passage": {"text": ""}}, "no field 'questions'"),
    ("MultiRC", {"idx": "7"}, "field 'idx' is '7'; expected a whole"),
    ("ReCoRD", {"qas": {}}, "field 'qas' is {}; expected objects"),
    ("ReCoRD", {"passage": OUTSIDE}, "entity .* is outside its passage"),
]


@pytest.mark.parametrize(("name", "change", "words"), CHANGES)
def test_another_form_is_named_and_nothing_is_written(published, tmp_path, name, change, words):
    row = PUBLISHED[name]
    dump(published / name / "train.jsonl", [row, {**row, **change}])
    with pytest.raises(UserError, match=f"{name}/train.jsonl:2: {words}"):
        imported("superglue", published, tmp_path / "out")
    assert not [file for file in (tmp_path / "out").rglob("*") if file.is_file()]


def test_a_file_without_labels_is_no_training_file(published, tmp_path):
    (published / "CB" / "test.jsonl").replace(published / "CB" / "train.jsonl")
    with pytest.raises(UserError, match=r"CB/train.jsonl:1: no label; a hidden test"):
        imported("superglue", published, tmp_path / "out")


def test_one_kind_typed_for_the_other_is_refused(published, tmp_path):
    dump(published / "RTE" / "train.jsonl", [FLAT["RTE"]] * 33)
    with pytest.raises(UserError, match=r"RTE/train.jsonl:33: FewGLUE has 32 .*import superglue"):
        imported("fewglue", published, tmp_path / "out")
    dump(published / "RTE" / "dev32.jsonl", [FLAT["RTE"]])
    with pytest.raises(UserError, match=r"RTE/dev32.jsonl: a file of FewGLUE; .*import fewglue"):
        imported("superglue", published, tmp_path / "out")
    with pytest.raises(UserError, match="none of the folders BoolQ, CB"):
        imported("fewglue", tmp_path, tmp_path / "more")
    (published / "CB" / "val.jsonl").unlink()
    (published / "RTE" / "dev32.jsonl").unlink()
    with pytest.raises(UserError, match=r"CB/val.jsonl: no such file; CB needs it"):
        imported("superglue", published, tmp_path / "out")
