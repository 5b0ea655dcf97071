from collections import Counter

import pytest

from ptrun.pocket.tasks import SPLITS, rows
from tests.pocket.rows_of import assert_splits, every


def test_rows_have_the_fields_and_sizes():
    assert all(set(row) == {"id", "text", "label"} for row in every("pocket_topics"))
    assert_splits("pocket_topics", "text")


@pytest.mark.parametrize("split", SPLITS)
def test_the_14_labels_are_even(split):
    counts = Counter(row["label"] for row in rows("pocket_topics", split))
    assert len(counts) == 14
    assert max(counts.values()) - min(counts.values()) <= 1


def test_documents_are_one_or_two_sentences():
    lengths = Counter(row["text"].count(". ") + 1 for row in every("pocket_topics"))
    assert set(lengths) == {1, 2} and min(lengths.values()) >= 1000
