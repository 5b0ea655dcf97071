"""Several labels a row: cells, metrics, thresholds, and parts that keep rare labels."""

import json
import random
from collections import Counter

import numpy as np
import pytest
from sklearn import metrics as sklearn

from ptrun.config.build import build
from ptrun.errors import UserError
from ptrun.metrics import by_label
from ptrun.task.multilabel import best_threshold, indicators, label_scores, labels_of
from ptrun.task.own import Own
from ptrun.task.protocol import carve, classes_of
from ptrun.task.setting import FewShot, LowResource
from ptrun.task.source import Row
from ptrun.types import Example, Labels, Prediction, Split
from tests.composing import task_node

LABELS = ["a", "b", "c"]


BOTH = ["a;b", "a | b", "a, b ,", ["a", "b"], '["a", "b"]', "['a', 'b']"]
BOTH += ['{"choices": ["a", "b"]}']
CELLS = [(cell, ["a", "b"]) for cell in BOTH]
CELLS += [(cell, []) for cell in ("", "[]", [], None, float("nan"))]
CELLS += [("a;b, c", ["a", "b, c"]), ("b;a;b", ["b", "a"]), ("a", ["a"]), (["", "a"], ["a"])]
CELLS += [(1, ["1"]), ([1, 2.0], ["1", "2"]), (True, ["true"])]


@pytest.mark.parametrize(("cell", "found"), CELLS)
def test_a_cell_is_read(cell, found):
    assert labels_of(Row("f:1", {"x": cell}), "x") == found


def test_a_separator_may_be_named():
    assert labels_of(Row("f:1", {"x": "a, b / c"}), "x", "/") == ["a, b", "c"]


def test_columns_with_0_and_1_are_labels():
    row = Row("f:1", {"a": 1, "b": "0", "c": "true", "d": None, "e": "x"})
    assert labels_of(row, ["a", "b", "c", "d", "e"]) == ["a", "c", "e"]
    with pytest.raises(UserError, match="field 'a' is 2; expected 0 or 1"):
        labels_of(Row("f:1", {"a": 2}), ["a"])


def test_another_value_is_refused():
    with pytest.raises(UserError, match="expected a list"):
        labels_of(Row("f:1", {"x": {"a": 1}}), "x")


def cases(count):
    dice = np.random.default_rng(0)
    for _ in range(count):
        rows, columns = int(dice.integers(1, 12)), int(dice.integers(2, 6))
        shares = dice.integers(1, 9, (rows, columns)) / 9  # with ties
        yield dice.random((rows, columns)) < 0.4, shares, [f"l{i}" for i in range(columns)]


@pytest.mark.slow
def test_metrics_are_those_of_scikit_learn():
    for golds, shares, labels in cases(250):
        guesses = shares > 0.5
        targets = [[x for x, on in zip(labels, own, strict=True) if on] for own in golds]
        predictions = [
            Prediction(
                "",
                [x for x, on in zip(labels, own, strict=True) if on],
                probabilities=dict(zip(labels, row.tolist(), strict=True)),
            )
            for own, row in zip(guesses, shares, strict=True)
        ]
        found = label_scores(labels, predictions, targets)
        assert (indicators(labels, targets) == golds).all()
        micro = sklearn.f1_score(golds, guesses, average="micro", zero_division=0)
        assert found["micro_f1"] == pytest.approx(100 * micro)
        kept = (golds | guesses).any(axis=0)
        each = sklearn.f1_score(golds, guesses, average=None, zero_division=0)
        assert found["macro_f1"] == pytest.approx(100 * (each[kept].mean() if kept.any() else 0))
        whole = sklearn.accuracy_score(golds, guesses)
        assert found["subset_accuracy"] == pytest.approx(100 * whole)
        held = golds.any(axis=0)
        precise = [
            sklearn.average_precision_score(golds[:, c], shares[:, c]) for c in np.flatnonzero(held)
        ]
        assert found["average_precision"] == pytest.approx(100 * np.mean(precise or [0.0]))
        scores = by_label("labels", [p.value for p in predictions], targets)["scores"]
        for c, label in enumerate(labels):
            if label in scores:
                assert scores[label]["f1"] == pytest.approx(100 * each[c])
                assert scores[label]["count"] == golds[:, c].sum()


@pytest.mark.slow
def test_the_best_threshold_has_the_best_f1():
    for golds, shares, _ in cases(100):
        gold, share = golds[:, 0], shares[:, 0]
        found = best_threshold(share, gold)
        if not gold.any():
            assert found == 0.5
            continue
        tried = [sklearn.f1_score(gold, share > t, zero_division=0) for t in np.arange(9) / 9]
        assert sklearn.f1_score(gold, share > found, zero_division=0) == pytest.approx(max(tried))


def several(count):
    dice = random.Random(0)
    weights = {"a": 0.6, "b": 0.3, "rare": 0.05}
    rows = [[x for x, share in weights.items() if dice.random() < share] for _ in range(count)]
    return [Example(f"{i}", {"text": f"text {i}"}, Labels(own)) for i, own in enumerate(rows)]


def share_of(examples, label):
    return sum(label in e.target for e in examples) / len(examples)


def test_tags_and_references_are_no_labels():
    for target in (["O", "B-PER"], ["a reference", "another"]):
        assert classes_of([Example("0", {"text": "t"}, target)]) == [None]


def test_parts_keep_rare_labels():
    examples = several(400)
    assert {"rare", "b", "a", None} == set(classes_of(examples))
    assert Counter(classes_of(examples))["rare"] == sum("rare" in e.target for e in examples)
    rest, dev = carve(examples, 0.1, 0, by_class=True)
    for label in ("a", "b", "rare"):
        assert share_of(dev, label) == pytest.approx(share_of(rest, label), abs=0.12)
    assert share_of(dev, "rare") > 0
    split = Split(examples, [], [], {})
    few = FewShot(k=16).choose(split, 0)
    assert sum("rare" in e.target for e in few.train) == 4
    assert not {e.id for e in few.train} & {e.id for e in few.dev}
    low = LowResource(share=0.2).choose(split, 0)
    count = sum("rare" in e.target for e in examples)
    assert sum("rare" in e.target for e in low.train) == int(0.2 * count)


ROWS = [("one", ["x", "y"]), ("two", ["y"]), ("three", []), ("four", ["z", "x"])]


def write(tmp_path, name, lines):
    file = tmp_path / name
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(file)


@pytest.mark.parametrize("form", ["semicolons", "lists", "columns", "choices"])
def test_own_tables(tmp_path, form):
    label = "tags"
    if form == "semicolons":
        file = write(tmp_path, "a.csv", ["text,tags", *(f"{t},{';'.join(x)}" for t, x in ROWS)])
    elif form == "lists":
        lines = [json.dumps({"text": t, "tags": x}) for t, x in ROWS]
        file = write(tmp_path, "a.jsonl", lines)
    elif form == "choices":
        lines = [f"{t}\t{json.dumps({'choices': x})}" for t, x in ROWS]
        file = write(tmp_path, "a.tsv", ["text\ttags", *lines])
    else:
        label = ["x", "y", "z"]
        lines = [f"{t},{','.join(str(int(c in x)) for c in label)}" for t, x in ROWS]
        file = write(tmp_path, "a.csv", ["text,x,y,z", *lines])
    task = Own(None, train=file, text="text", label=label, kind="multilabel")
    assert (task.kind, task.answer, task.metric) == ("multilabel", "labels", "micro_f1")
    assert [e.target for e in task.load("train")] == [sorted(own) for _, own in ROWS]
    assert task.labels == ["x", "y", "z"]
    assert str(task.accounts["train"]) == "4 rows"


def test_labels_of_a_row_are_in_the_order_of_answers(tmp_path):
    file = write(tmp_path, "a.csv", ["text,z,a", "one,1,1", "two,0,1"])
    task = Own(None, train=file, text="text", label=["z", "a"], kind="multilabel")
    assert [e.target for e in task.load("train")] == [["z", "a"], ["a"]]


def test_a_label_that_train_lacks_is_refused(tmp_path):
    file = write(tmp_path, "a.csv", ["text,tags", "one,x;y", "two,y"])
    dev = write(tmp_path, "b.csv", ["text,tags", "one,x;q"])
    task = Own(None, train=file, dev=dev, text="text", label="tags", kind="multilabel")
    with pytest.raises(UserError, match="'q', a label that"):
        task.load("dev")


def test_one_label_a_row_names_the_kind(tmp_path):
    lines = ["text,tags", *(f"t{i},{'x;y' if i % 2 else 'y;x'}" for i in range(6)), "t,x"]
    file = write(tmp_path, "a.csv", lines)
    task = Own(None, train=file, text="text", label="tags")
    with pytest.raises(UserError, match=r"task\.kind=multilabel"):
        _ = task.labels
    with pytest.raises(UserError, match=r"task\.kind=multilabel"):
        Own(None, train=file, text="text", label=["text", "tags"])


def test_a_data_set_names_a_label_that_it_does_not_have():
    task = build("task", task_node("pocket_two_topics"), None)
    row = Row("rows.jsonl:3", {"text": "a", "topics": ["wrok"]})
    with pytest.raises(UserError, match="'wrok' is no label of task pocket_two_topics; did you"):
        task.example("0", row)
    example = task.example("0", Row("f:1", {"text": "a", "topics": "book;work"}))
    assert example.target == ["work", "book"]
