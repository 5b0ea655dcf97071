"""The page of a run: its numbers are sklearn's and seqeval's, and it shows data as text."""

import re

import pytest
from seqeval.metrics import classification_report as seqeval
from sklearn.metrics import classification_report as sklearn

from ptrun.folder.digest import line
from ptrun.folder.find import find
from ptrun.metrics import by_label
from ptrun.reporting.page import distance, html, parts, show
from tests.command.by_hand import ROWS, made, written

LABELS = [("a", "a"), ("a", "b"), ("b", "a"), ("b", "a"), ("c", "c"), ("b", "b"), ("a", "c")]
TAGS = [
    (["O", "B-PER", "I-PER", "O"], ["O", "B-PER", "O", "O"]),
    (["B-LOC", "O", "B-PER"], ["B-LOC", "O", "B-PER"]),
    (["B-LOC", "I-LOC", "O"], ["O", "B-LOC", "O"]),
]


def page_of(folder, pairs, answer, fields=None):
    """Return the parts of a run with these targets and predictions, by their first word."""
    rows = [{"id": f"e{i}", "prediction": p, "target": t} for i, (t, p) in enumerate(pairs)]
    scores = by_label(answer, [p for _, p in pairs], [t for t, _ in pairs])
    made(folder, by_label=scores)
    written(folder / "predictions.jsonl", rows)
    (folder / "metrics.jsonl").write_text("".join(map(line, ROWS)))
    page = [*parts(find(str(folder), "show"), fields or {})]
    return {part.title.split()[0]: part for part in page}


@pytest.mark.parametrize(
    ("answer", "pairs", "report"), [("label", LABELS, sklearn), ("tags", TAGS, seqeval)]
)
def test_scores_of_labels_are_those_of_the_reference(tmp_path, answer, pairs, report):
    told = report(*zip(*pairs, strict=True), output_dict=True, zero_division=0)
    rows = page_of(tmp_path / "run", pairs, answer)["Labels"].table.rows
    assert len(rows) == 3 if answer == "label" else 2
    for row in rows:
        theirs = told[row["label"]]
        ours = [float(row[name]) / 100 for name in ("precision", "recall", "f1")]
        expected = [theirs[name] for name in ("precision", "recall", "f1-score")]
        assert ours == pytest.approx(expected, abs=1e-4)
        assert int(row["count"]) == theirs["support"]


def test_one_of_each_confusion_comes_first_and_the_most_frequent_before_others(tmp_path):
    texts = page_of(tmp_path / "run", LABELS, "label")["Worst"].texts
    assert [*texts] == ["e2", "e1", "e6", "e3"]  # b → a is twice there
    assert texts["e2"] == "b → a"


def test_words_with_another_tag_are_listed(tmp_path):
    fields = {"e0": {"tokens": ["Yes", "Ann", "Lee", "."]}, "e2": {"tokens": ["New", "York", "."]}}
    part = page_of(tmp_path / "run", TAGS, "tags", fields)["Worst"]
    assert part.title.endswith("2 of 3 are wrong") and [*part.texts] == ["e2", "e0"]
    assert part.texts["e0"] == "Lee I-PER → O\ntokens: Yes Ann Lee ."


@pytest.mark.parametrize(
    ("prediction", "target", "expected"),
    [
        *[("a", "a", 0), (1, 2, 1), (2.5, 4.0, 1.5), (None, 4.0, 1), (None, "a", 1)],
        *[("the cat sat", ["a cat"], 1 - 2 / 3), ("", [], 0), ("x", [], 1), ("b", ["a", "b"], 0)],
        *[("<=50K", ">50K", 1), ("+", ["+"], 0)],
        *[(["O", "B"], ["O", "O"], 1), (["x"], ["y", "x"], 1), ([], ["x"], 1)],
    ],
)
def test_the_distance_of_an_answer(prediction, target, expected):
    assert distance(target, prediction) == pytest.approx(expected)


def test_texts_of_data_are_neither_markup_nor_control_characters(tmp_path, capsys):
    bad = "<script>alert(1)</script>\x1b[31m"
    page = page_of(tmp_path / "run", [(bad, "b")] * 3, "label", {"e0": {bad: bad}})
    text = html(bad, page.values())
    assert "<script" not in text and "\x1b" not in text and r"\x1b[31m" in text
    assert "http:" not in text and "src=" not in text and text.count("<polyline") == 2
    (dots,) = re.findall(r'viewBox="1 0 1 0.5"[^>]*><polyline points="([^"]*)"', text)
    assert dots == "1,0 2,0.5"  # the loss falls from 1 to 0.5
    show(page.values())
    told = capsys.readouterr().out
    assert "\x1b" not in told and "loss: 1 at step 1, 0.5 at step 2\n    █▁\n" in told
