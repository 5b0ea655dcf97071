"""Questions with one answer, several or none: spans of the context, to the character."""

import re
from collections import Counter

import pytest

from ptrun.pocket.tasks import SPLITS, rows
from tests.pocket.rows_of import assert_splits, every

TASKS = ("pocket_qa", "pocket_multispan")


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_rows_have_the_fields_and_sizes(task):
    fields = {"id", "title", "context", "question", "answers"}
    assert all(set(row) == fields for row in every(task))
    assert_splits(task, "context")


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_offsets_are_exact_and_in_order(task):
    for row in every(task):
        texts, starts = row["answers"]["text"], row["answers"]["answer_start"]
        assert starts == sorted(set(starts)) and len(texts) == len(starts)
        assert all(
            row["context"][at : at + len(t)] == t for t, at in zip(texts, starts, strict=True)
        )


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_contexts_have_three_to_six_sentences(task):
    lengths = Counter(row["context"].count(". ") + 1 for row in every(task))
    assert set(lengths) <= {3, 4, 5, 6} and len(lengths) >= 3


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_an_answer_is_not_in_its_question(task):
    told = 0
    for row in every(task):
        assert row["question"].endswith("?") and "{" not in row["question"]
        for text in row["answers"]["text"]:
            told += bool(re.search(rf"\b{re.escape(text)}\b", row["question"]))
    assert told <= 4  # "Forrest" as the answer of "Who directed New Forrest?"


@pytest.mark.parametrize("split", SPLITS)
def test_a_quarter_has_no_answer_and_the_others_have_one(split):
    counts = Counter(len(row["answers"]["text"]) for row in rows("pocket_qa", split))
    assert counts == {0: sum(counts.values()) // 4, 1: sum(counts.values()) * 3 // 4}


@pytest.mark.parametrize("split", SPLITS)
def test_there_are_one_to_four_spans_equally_often(split):
    counts = Counter(len(row["answers"]["text"]) for row in rows("pocket_multispan", split))
    assert set(counts) == {1, 2, 3, 4} and len(set(counts.values())) == 1
