"""Labels of words that mark no spans: read, refused, scored by word, predicted."""

import json

import pytest

from ptrun import testing
from ptrun.errors import UserError
from ptrun.runs.finished import recalled
from ptrun.task.source import Row
from ptrun.task.tagging import Tagging, Tags
from ptrun.types import Example, Prediction

COMMON = {"name": "pos", "version": 1, "source": {"folder": "pos"}}
COMMON |= {"splits": {"train": "train", "dev": None, "test": "test"}}
FIELDS = {"tokens": "tokens", "tags": "upos"}
ROWS = {
    "train": [(["The", "cat"], ["DET", "NOUN"]), (["It", "sat"], ["PRON", "VERB"])],
    "test": [(["Ah", "The"], ["INTJ", "DET"])],
}


@pytest.fixture
def made(tmp_path):
    def make(rows=ROWS, kind=Tags, **keys):
        (tmp_path / "pos").mkdir(exist_ok=True)
        for split, pairs in rows.items():
            lines = [json.dumps({"tokens": t, "upos": u}) for t, u in pairs]
            (tmp_path / "pos" / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
        return kind(str(tmp_path), **COMMON, **FIELDS, **keys)

    return make


def test_labels_are_those_of_all_parts_or_listed(made):
    task = made()
    assert task.labels == ["DET", "INTJ", "NOUN", "PRON", "VERB"]
    assert [e.target for e in task.load("train")] == [["DET", "NOUN"], ["PRON", "VERB"]]
    assert made(labels=["VERB", "DET", "NOUN", "PRON"]).load("train")[1].target == ["PRON", "VERB"]
    numbered = made(
        {"train": [(["a", "b"], [1, 0])], "test": []}, tag_names=["X", "Y"], labels=["X", "Y"]
    )
    assert numbered.load("train")[0].target == ["Y", "X"]


def test_a_finished_run_recalls_labels_that_no_file_of_options_lists():
    for kind in ("Tags", "Tagging"):
        node = {"_target_": f"ptrun.task.tagging.{kind}", **COMMON, **FIELDS}
        task = recalled(node, {"labels": ["O", "B-X", "I-X"]}, None)
        assert task.labels == ["O", "B-X", "I-X"]
        assert task.unlabelled("1", Row("row 1", {"tokens": ["a"]})).target == ["O"]


WRONG = [
    (["INTJ", "DET"], {"labels": ["DET"]}, r"train.jsonl:1: tag 'INTJ' is not a tag of .*: DET\.$"),
    (["DET", ""], {}, "train.jsonl:1: tag '' is not a tag"),
    (["DET", None], {}, "train.jsonl:1: tag None is not a tag"),
    ([1, 2], {}, r"tag 1 is not a tag(.|\n)*task.tag_names="),
    (["DET"], {}, "must be lists of equal length"),
    ("DET", {}, "field 'upos' is 'DET'; expected a list of tags"),
    (
        ["DET", "B-X"],
        {"kind": Tagging},
        r"tag 'DET' (.|\n)*allowed: O, B-X(.|\n)*Tags .*--kind tags",
    ),
]


@pytest.mark.parametrize(("tags", "keys", "told"), WRONG)
def test_other_rows_are_refused(made, tags, keys, told):
    with pytest.raises(UserError, match=told):
        made({"train": [(["a", "b"], tags)], "test": [(["a"], ["DET"])]}, **keys).load("train")


def test_words_are_counted_and_one_that_was_cut_is_wrong(made):
    task = made()
    examples = [Example("1", {}, ["DET", "NOUN", "NOUN"]), Example("2", {}, ["VERB"])]
    answers = [Prediction("1", ["DET", "NOUN", ""]), Prediction("2", ["DET"])]
    scores = task.score(answers, examples)
    assert scores == {"accuracy": 50.0, "macro_f1": pytest.approx(100 * (2 / 3 + 2 / 3 + 0) / 3)}


def test_a_cut_word_has_no_label():
    words = ["The"] * 400
    rows = [Example("1", {"tokens": words}, ["DET"] * 400)]
    method, batch, output = testing.read("method=lora", "task=pocket_words", examples=rows)
    (prediction,) = method.readout.decode(output, batch)
    assert prediction.value[0] in method.task.labels and set(prediction.value[300:]) == {""}


@pytest.mark.slow
def test_the_kind_keeps_the_promises():
    backbones = ("pocket_bert", "pocket_gpt2", "pocket_t5")
    tried = testing.check_task("pocket_words", methods=("ptuning_v2",), backbones=backbones)
    assert len(tried) == 3
