from collections import Counter

import pytest

from ptrun.pocket.tasks import SPLITS, rows
from tests.pocket.rows_of import assert_splits, every


@pytest.mark.slow
def test_rows_have_the_fields_and_sizes():
    fields = {"id", "article", "question", "options", "answer"}
    assert all(set(row) == fields for row in every("pocket_choice"))
    assert_splits("pocket_choice", "article")


@pytest.mark.parametrize("split", SPLITS)
def test_the_letters_are_even(split):
    counts = Counter(row["answer"] for row in rows("pocket_choice", split))
    assert set(counts) == set("ABCD")
    assert max(counts.values()) - min(counts.values()) <= 1


def test_four_different_options_stand_in_the_article_and_not_in_the_question():
    for row in every("pocket_choice"):
        assert len(set(row["options"])) == 4
        assert all(option in row["article"] for option in row["options"])
        assert row["question"].endswith("?") and "{" not in row["question"]
